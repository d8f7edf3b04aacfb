#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "cache_node/decision_table.h"
#include "cache_node/lease_table.h"
#include "cache_node/node_counters.h"
#include "cache_node/node_options.h"
#include "cache_node/put_table.h"
#include "cache_node/ram_tier.h"
#include "cache_node/run_heat.h"
#include "core/arena.h"
#include "core/clock.h"
#include "core/node_stats.h"
#include "core/random.h"
#include "core/ticket.h"
#include "transport/transport.h"

namespace cistern {

inline constexpr uint32_t kLeaseTtlDefaultMs = 2000;
inline constexpr uint32_t kPutDeadlineDefaultMs = 2000;
inline constexpr uint32_t kPutDeadlineMaxMs = 30'000;
inline constexpr Nanos kPutGrace =
    250 * kMillisecond;  // What is on its way at the deadline may still arrive.
inline constexpr Nanos kPayloadHoldMax =
    30 * kSecond;  // A peer that does not take a payload for so long is cut off.
inline constexpr uint32_t kPutFramesMax = 4096;  // PUT frames whose pulls are under way.
// Copied from writers' windows, then others get their turn: a hit waits so long. Parts are cut for it.
inline constexpr uint64_t kPullBytesPerTurn = 64u << 10;
inline constexpr size_t kDropsMax = 64;  // Under way, of as many peers.
// Coordinates that drops ask for in one turn, in all tiers.
inline constexpr uint64_t kDropLooksPerTurn = 1024;
inline constexpr size_t kBehindDropsMax = 1024;    // Frames of peers whose drop has not ended.
inline constexpr size_t kWaitingOffersMax = 1024;  // Offers held back while the disk log is behind.
inline constexpr Nanos kOfferWaitMax = 500 * kMillisecond;

class DiskTier;
class HbmTier;

// One share of a node: block index, RAM, leases and puts behind the frames of its clients (DESIGN §5).
//
// Owner: the shard's thread (ShardLoop), or the simulator. Everything happens in Poll(), on one thread; no
// locks. Lifetime: the transport and clock outlive it; its destructor fences every peer, so no transfer
// outlives the arena. Errors: nothing from a peer is trusted; what does not decode is answered with kError
// and counted.
class NodeShard final : public TransportHandler {
 public:
  // Makes the arena (not prefaulted) and becomes the transport's handler. ResourceExhausted: too little
  // memory; InvalidArgument: RAM below one slab, unknown policy.
  static absl::StatusOr<std::unique_ptr<NodeShard>> Create(NodeShardOptions options, Clock& clock,
                                                           Transport& transport, Random& random);
  ~NodeShard() override;
  NodeShard(const NodeShard&) = delete;
  NodeShard& operator=(const NodeShard&) = delete;

  // Moves what can move: transport, pulls under way, deadlines. True if anything happened. Never blocks.
  bool Poll();
  // When Poll has something to do although nothing arrives; kNever when nothing is due. In the past: Poll
  // now.
  Nanos NextWake() const;

  // The node's place in the cluster, from its registration. Another incarnation or cluster ends every peer
  // (F24, F46).
  void SetIdentity(const ClusterId& cluster, uint64_t incarnation);
  // Figures of this shard; cpu_seconds (of the process) only from shard 0, so that sums are right.
  NodeStats Stats() const;
  // Ends every peer, their leases and puts.
  void Shutdown(const absl::Status& why);

  // Before the first Poll. Without one, there is no NVMe tier.
  void AttachDisk(std::unique_ptr<DiskTier> disk);
  DiskTier* disk() { return disk_.get(); }
  // After AttachDisk. Without one, there is no HBM tier.
  void AttachHbm(std::unique_ptr<HbmTier> hbm);
  HbmTier* hbm() { return hbm_.get(); }

  const NodeCounters& counters() const { return counters_; }
  RamTier& ram() { return ram_; }
  const LeaseTable& leases() const { return leases_; }
  const PutTable& puts() const { return puts_; }
  MemoryRegion& arena() { return arena_; }
  size_t peers() const { return peers_.size(); }

  absl::Status OnHello(PeerId peer, const Hello& hello, HelloAck& ack,
                       std::vector<const MemoryRegion*>& regions) override;
  void OnPeerUp(PeerId peer, const HelloAck& ack) override;
  void OnPeerDown(PeerId peer, const absl::Status& why) override;
  absl::Status OnPayload(PeerId peer, const FrameHeader& header, ByteView body, PayloadPlan& plan) override;
  void OnFrame(PeerId peer, const InFrame& frame) override;
  void OnSent(PeerId peer, uint64_t cookie) override;
  void OnPulled(PeerId peer, uint64_t pull_id, const PullResult& result) override;

 private:
  struct Peer {
    uint32_t rights = 0;
    uint64_t client_id = 0;
    Nanos ticket_end = kNever;
    TenantIndex tenant = 0;
    bool drops = false;        // It has a row in drops_,
    uint32_t behind_drop = 0;  // and so many in behind_drops_.
  };
  // Blocks whose parts go, in turns. How far: `block` of them, and its coordinates before `from`. Or all: how
  // many tiers, from the top, and the slots before `slot` of the next.
  struct DropJob {
    PeerId peer = 0;
    uint64_t request_id = 0;
    std::vector<BlockHash> blocks;
    size_t block = 0;
    uint64_t from = 0;
    bool all = false, begun = false;
    uint32_t tiers = 0;
    SlotId slot = 0;
    DropReply reply{};
  };
  // One PUT frame whose bytes are pulled from the client's window. Pooled.
  struct PutFrame {
    PeerId peer = 0;
    uint64_t request_id = 0;
    uint32_t next = 0;  // First part not yet asked for to its end.
    // Of a part that is pulled in pieces, one after the other: how far it was asked for, the bytes of the
    // piece under way (0: none), the checksum of those before it.
    uint32_t next_at = 0, piece_bytes = 0, crc = 0;
    uint32_t waiting = 0;  // Pulls under way.
    bool live = false;
    PutRequest request;
    std::vector<PartResult> results;
  };

  NodeShard(NodeShardOptions options, Clock& clock, Transport& transport, Random& random, MemoryRegion arena);

  // node_shard.cc
  void Handle(PeerId peer, const Peer& state, const InFrame& frame);
  bool Allowed(PeerId peer, const Peer& state, const FrameHeader& header, uint32_t right);
  void ReplyError(PeerId peer, uint64_t request_id, const absl::Status& status);
  template <typename Message>
  void Reply(PeerId peer, FrameType type, uint64_t request_id, const Message& message) {
    body_.clear();
    message.Encode(body_);
    SendOrFence(peer, OutFrame{.type = type, .request_id = request_id, .body = body_, .payload = {}});
  }
  void SendOrFence(PeerId peer, const OutFrame& frame);
  void FenceSoon(PeerId peer, absl::Status why);
  void RunFences();
  void RunTimers(Nanos now);
  Nanos TimerWake() const;
  void SendStats(PeerId peer, const InFrame& frame);
  void AddGauges(NodeStats& stats) const;
  void AddPeers(NodeStats& stats) const;

  // node_shard_drop.cc
  bool GoesBehindDrops(PeerId peer, const Peer& state, const InFrame& frame);
  bool WaitsForDrop(PeerId peer, Peer& state, const InFrame& frame);
  void Drop(PeerId peer, const Peer& state, const InFrame& frame);
  void DropPart(const BlockHash& block, PartCoord coord, DropReply& reply);
  bool DropOn(DropJob& job);
  bool DropAllOn(DropJob& job);
  void EndDropAll();
  void PollDrops();
  void HandleBehindDrops();
  void EndDropsOf(PeerId peer);

  // node_shard_read.cc
  struct ScanResult {
    uint32_t hit_blocks = 0;
    PartResult stopped_by = PartResult::kOk;
  };
  ScanResult Scan(const ChainRequest& request, std::vector<SlotId>* slots);
  uint32_t BlocksOfThisShard(const ChainRequest& request) const;
  void CountBlocks(const ScanResult& scan, size_t asked);
  bool DecodeChain(PeerId peer, const InFrame& frame);
  bool TryLeaseAll(absl::Span<const SlotId> slots);
  void Lookup(PeerId peer, const InFrame& frame);
  void Plan(PeerId peer, const InFrame& frame);
  void Read(PeerId peer, const InFrame& frame);
  void Renew(PeerId peer, const InFrame& frame);
  void Release(PeerId peer, const InFrame& frame);
  bool TakePayload(SlotId slot, uint64_t& bytes);
  void SendParts(PeerId peer, FrameType type, uint64_t request_id, uint16_t flags = 0);
  void Describe(SlotId slot, PartDescriptor& out) const;
  void EndRow(uint32_t row);

  // node_shard_disk.cc
  struct WaitingFrame {
    PeerId peer = 0;
    FrameHeader header;
    Bytes body;
    Nanos until = kNever;
  };
  // A frame that has waited waits no more, but a plan that waited for HBM may for the disk.
  enum class Resuming : uint8_t { kNo, kFromHbm, kYes };
  bool HasTiersBelow() const { return disk_ != nullptr || hbm_ != nullptr; }
  uint32_t BlocksBelow(const ChainRequest& request, uint32_t from, PartResult& stopped_by);
  bool StageFirst(PeerId peer, const InFrame& frame, uint32_t in_ram, uint32_t below);
  bool TakesParts(const InFrame& frame) const;
  void StageBlock(uint64_t group, uint32_t block, TenantIndex tenant);
  bool HoldOffer(PeerId peer, const InFrame& frame);
  bool PollDisk();
  void Resume(const WaitingFrame& waiting, FrameType type, Resuming how);
  Nanos DiskWake() const;
  // node_shard_hbm.cc
  bool StageFromHbm(PeerId peer, const InFrame& frame, uint32_t in_ram, uint32_t below);
  bool PollHbm();
  Nanos HbmWake() const;

  void StoreOnDisk(absl::Span<const SlotId> slots, absl::Span<const uint32_t> depths);

  // node_shard_retention.cc
  TenantIndex TenantOf(const Ticket& ticket);
  HolderId HolderFor(PeerId peer, const ChainRequest& request);
  void RetainOffered(const BlockHash& block, const Retention& retention, SlotId slot, HolderId holder);
  void SweepExpired(Nanos now);
  Nanos SweepWake() const;
  void LoadQuotas();
  void Quota(PeerId peer, const InFrame& frame);
  void AddTenants(NodeStats& stats) const;

  // node_shard_tails.cc
  // All its parts are in RAM, or on disk, or some here and some there.
  bool IsTailHere(const BlockHash& block) const;
  void FillDetail(const InFrame& frame, const ScanResult& scan, ReplyDetail& detail);
  void Note(PeerId peer, const InFrame& frame);
  void Agree(PeerId peer, const InFrame& frame);

  // node_shard_uses.cc
  // Into uses_. `leading` of slots_ are the request's first pairs; from `first_missing` on it lacks blocks.
  void BeginUses(const ChainRequest& request, size_t leading, uint32_t first_missing, bool to_store);
  void TouchAll(const ChainRequest& request);
  // The runs of the request's first `blocks` blocks were used.
  void HeatRuns(const ChainRequest& request, uint32_t blocks);

  // node_shard_write.cc
  void Offer(PeerId peer, const InFrame& frame);
  void JudgeOffered(const ChainRequest& request, uint32_t blocks_here, HolderId holder);
  PartResult ReserveOffered(PeerId peer, const ChainRequest& request, uint32_t block, uint32_t coord,
                            Nanos deadline, HolderId holder, uint64_t& put_id);
  void Put(PeerId peer, const InFrame& frame);
  PartResult CheckPut(PeerId peer, const PutRequest::Part& part, PutState state, uint32_t& put);
  PartResult CheckBytes(uint32_t put, uint32_t announced_crc, uint32_t arrived_crc);
  void PublishFrame(PeerId peer, const PutRequest& request, absl::Span<PartResult> results);
  void Abort(PeerId peer, const InFrame& frame);
  void AbandonPut(uint32_t put);
  void ExpirePuts(Nanos now);
  // node_shard_pull.cc
  void PutFromWindow(PeerId peer, const InFrame& frame);
  bool AdvancePulls();
  uint32_t StartPull(PeerId peer, uint32_t index, uint64_t budget);
  void FinishFrame(uint32_t index);
  void DropFramesOf(PeerId peer);

  uint32_t Tick() { return RamTier::TickOf(clock_.Now()); }

  const NodeShardOptions options_;
  Clock& clock_;
  Transport& transport_;
  Random& random_;
  MemoryRegion arena_;
  NodeCounters counters_;
  RamTier ram_;        // Over arena_.
  LeaseTable leases_;  // Names slots of ram_.
  PutTable puts_;      // Names slots of ram_.
  DecisionTable decisions_;
  RunHeat heat_;
  std::optional<ClusterId> cluster_;
  uint64_t incarnation_ = 0;
  absl::flat_hash_map<PeerId, Peer> peers_;
  std::vector<std::pair<PeerId, absl::Status>> to_fence_;  // Outside callbacks of the transport.
  Nanos next_ticket_end_ = kNever;
  std::vector<PutFrame> put_frames_;
  std::vector<uint32_t> free_put_frames_;
  std::vector<uint32_t> pull_queue_;          // Put frames with parts to ask for, oldest first.
  bool advancing_ = false;                    // Inside AdvancePulls: OnPulled leaves finishing to it.
  uint64_t pull_budget_ = kPullBytesPerTurn;  // Left of this turn's.
  std::unique_ptr<DiskTier> disk_;            // Null: none. Uses ram_ and goes before it.
  std::unique_ptr<HbmTier> hbm_;              // Null: none. Uses ram_ and disk_ and goes before them.
  absl::flat_hash_map<uint64_t, WaitingFrame> waiting_plans_;    // By the disk tier's group.
  absl::flat_hash_map<uint64_t, WaitingFrame> waiting_for_hbm_;  // By the HBM tier's group.
  std::deque<WaitingFrame> waiting_offers_;                      // Oldest first.
  std::deque<DropJob> drops_;                                    // One after the other.
  std::deque<WaitingFrame> behind_drops_;
  uint64_t drop_looks_ = kDropLooksPerTurn;  // Left of this turn's.
  Nanos next_sweep_ = 0;                     // Of what has expired.
  Resuming resuming_ = Resuming::kNo;

  // Scratch that keeps its capacity, so a warm path does not allocate.
  ChainRequest chain_;
  LookupReply lookup_reply_;
  PlanReply plan_reply_;
  NoteRequest note_;
  ReadRequest read_;
  OfferReply offer_reply_;
  PutRequest put_;
  PutReply put_reply_;
  IdList ids_;
  Bytes body_;
  std::vector<SlotId> slots_;
  std::vector<uint32_t> slot_pairs_;    // Of slots_: block x coords + coord in the request.
  std::vector<SlotId> slots_of_size_;   // Of BeginUses.
  std::vector<uint64_t> missing_keys_;  // Of BeginUses.
  std::vector<UseId> uses_;             // Of the request, for each of its coords.
  std::vector<SlotId> ended_;
  std::vector<SlotId> held_;  // Slots whose bytes go into payload_.
  std::vector<SlotId> published_;
  std::vector<uint32_t> published_depths_;
  std::vector<ConstSegment> payload_;
  std::vector<Probe> probes_;
};

}  // namespace cistern
