#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/core/client_core.h"
#include "client/core/client_counters.h"
#include "client/core/operation.h"
#include "client/core/peer_table.h"
#include "client/core/request_table.h"
#include "client/core/verify.h"
#include "client/window.h"

namespace cistern {

// Bounds of one operation. Their sum bounds what a client has under way: operations x (asks + pulls + put
// frames).
inline constexpr uint32_t kPartsPerAskMax =
    16384;  // Descriptors of 81 bytes: a PLAN_REPLY stays below kBodyBytesMax.
inline constexpr uint64_t kInlineAskBytesMax =
    16u << 20;  // Payload of one reply; longer reads are cut into such windows.
inline constexpr uint32_t kInlineAsksInFlightMax = 4;  // Windows under way, one operation and peer.
inline constexpr uint32_t kPullsInFlightMax = 64;      // One operation.
inline constexpr uint64_t kPullBytesPerPoll =
    8u << 20;                               // One operation: others get their turn, deadlines are looked at.
inline constexpr uint32_t kRoundsMax = 12;  // Of asking new and old owners in turn.
inline constexpr uint32_t kRoundsInPartsMax = 6;  // A later one waits for all that is on its way.
inline constexpr Nanos kFlushAfter =
    50 * kMillisecond;  // How long a RELEASE may wait for a frame to ride along with.
inline constexpr uint64_t kWindowPutBytes =
    128u << 10;  // One PUT out of the window: the node copies it while the next one is checksummed here.
inline constexpr uint64_t kInlinePutBytes = 1u << 20;  // One PUT with payload.
// All operations: what is checksummed for stores before loads get their turn. A part that is bigger is done
// in such pieces; a frame of smaller ones is not divided.
inline constexpr uint64_t kPutBytesPerPoll = 256u << 10;
inline constexpr uint64_t kPutBytesInFlightMax = 16u
                                                 << 20;  // One operation and peer, besides the first frame.

// A rank that was to bring a part is late when nothing came from others for so long.
inline constexpr Nanos kShareQuietMax = 50 * kMillisecond;
inline constexpr Nanos kShareLookEvery = 200 * kMicrosecond;  // Other processes wake nobody.

// What ClientCore does, spread over core_*.cc by topic. Handlers only record what came and mark operations
// dirty; Pump moves operations on, so no transport callback starts anything that could call back into it.
struct ClientCore::Impl final : public TransportHandler {
  Impl(const ClientCoreOptions& options, Clock& clock, Transport& transport, Random& random);
  ~Impl() override;

  // core_events.cc: what the transport tells.
  absl::Status OnHello(PeerId, const Hello&, HelloAck&, std::vector<const MemoryRegion*>&) override;
  void OnPeerUp(PeerId peer, const HelloAck& ack) override;
  void OnPeerDown(PeerId peer, const absl::Status& why) override;
  absl::Status OnPayload(PeerId peer, const FrameHeader& header, ByteView body, PayloadPlan& plan) override;
  void OnFrame(PeerId peer, const InFrame& frame) override;
  void OnSent(PeerId peer, uint64_t cookie) override;
  void OnPulled(PeerId peer, uint64_t pull_id, const PullResult& result) override;
  void TakeFrame(ClientPeer& peer, const InFrame& frame);
  absl::Status TakePayload(ClientPeer& peer, const FrameHeader& header, ByteView body, PayloadPlan& plan);
  void LoseReply(uint64_t request_id);
  PartResult DecodeReply(Operation& op, Request& request, const ClientPeer& peer, const FrameHeader& header,
                         ByteView body);
  PartResult CheckPlanReply(const Operation& op, const Ask& ask, const ClientPeer& peer) const;
  void LandPieces(Operation& op, Request& request, absl::Span<const uint32_t> piece_crcs);
  void OnRenewReply(Request& request, ByteView body);

  // core_requests.cc: frames out, and how requests end.
  Request* NewRequest(Operation* op, FrameType type, uint32_t index, ClientPeer& peer, Nanos now);
  void Unlink(Request* request);  // Leaves operation and peer; the slot is free afterwards.
  PartResult Admit(ClientPeer& peer) { return peers_.Admit(peer, clock_.Now()); }
  absl::Status SendFrame(PeerId peer, const OutFrame& frame);
  void Transmit(Request& request);
  void EncodeRequest(Request& request, PeerId connection, OutFrame& frame);
  void EncodeAsk(Operation& op, Ask& ask, Request& request, OutFrame& frame);
  void FailRequest(Request& request, PartResult why);
  void FailPeer(uint32_t slot, uint64_t last_request = UINT64_MAX);
  void SendQueued(uint32_t slot);
  void GiveUp(Operation& op, PartResult why);  // Ends every request of op; no byte lands afterwards.
  void GiveUpOne(Operation& op, Request& request, PartResult why);
  bool CancelReply(PeerId peer, uint64_t request_id);
  void QueueRelease(PartSet& set);
  void FlushReleases();
  void FlushNotes();
  void NoteSuperseded(const ChainView& chain, uint32_t block, uint64_t successor);
  void NoteStranded(const Operation& op, const Ask& ask, uint32_t used_blocks);
  ClientPeer* PeerOfSet(const PartSet& set);  // Null: another connection, incarnation, or none.
  void ReturnChunk(Request& request);

  // core_lifecycle.cc
  void Close();
  Operation* Begin(OpKind kind, Nanos deadline);  // Null: WhyRefused.
  void AddOperation();
  // A submission that throws, for want of memory, has begun nothing: its callback is not run, and nothing of
  // it lands in the caller's memory any more.
  template <typename Fill, typename Start>
  OpId Launch(Operation& op, Fill&& fill, Start&& start) {
    const OpId id = op.id;
    try {
      fill();
    } catch (...) {
      active_.pop_back();
      Recycle(op);
      throw;
    }
    try {
      start();
    } catch (...) {
      Forsake(op);
      throw;
    }
    return id;
  }
  void Forsake(Operation& op);
  bool BeginsNothing() const { return closing_ || (scope_ != nullptr && scope_->over); }
  absl::Status WhyRefused() const;
  void Refuse(std::function<void()> callback);
  void CancelCall(OpId id);
  void MarkDirty(Operation& op);
  void ComeAgain(Operation& op) {  // In the next Poll.
    if (!std::exchange(op.again, true)) again_.push_back(&op);
  }
  void Break(Operation& op);
  void Advance(Operation& op);
  void End(Operation& op, PartResult why);
  void Complete(Operation& op);
  bool Pump();
  bool Timers(Nanos now);
  bool RunCallbacks();
  void Deliver(Operation& op);
  void Recycle(Operation& op);

  // core_find.cc: Lookup, Plan, Fetch.
  void StartFind(Operation& op);
  void BeginFind(Operation& op);
  bool BuildRound(Operation& op);
  void ListAsks(Operation& op);
  void AddPiece(Operation& op, const Piece& piece, uint32_t slot);
  void AdvanceFind(Operation& op);
  void PumpAsks(Operation& op);
  bool WindowFull(const Operation& op, const Ask& ask) const;
  bool ApplyNext(Operation& op);
  static bool IsBehindOpen(const Operation& op, uint32_t index);
  void ApplyAnswer(Operation& op, uint32_t index);
  bool TryOtherLevel(const Operation& op, RunState& run);
  void Miss(RunState& run, PartResult why, Operation& op);
  void TakeDetail(Operation& op, const Ask& ask);
  void FinishFind(Operation& op);
  void MakePlan(Operation& op);
  void QueueFetch(Operation& op, uint32_t index);

  // core_load.cc: parts into pages.
  void StartLoad(Operation& op);
  void AddRead(Operation& op, const Transfer& transfer);
  void SendRead(Operation& op, uint32_t index);
  void AdvanceLoad(Operation& op);
  void PumpTransfers(Operation& op);
  bool StartPull(Operation& op, uint32_t transfer);
  void RecordPart(Operation& op, uint32_t page, PartResult result);
  ExpectedPart Expect(const Operation& op, uint32_t page, uint32_t coord) const;
  void FinishPages(Operation& op);
  void Renew(Operation& op, Nanos now);
  PlanState* FindPlan(PlanHandle handle);
  const PlanState* FindPlan(PlanHandle handle) const;
  // Sizes of some of a plan's parts, into picked_bytes_.
  absl::Status PickParts(const PlanState& plan, absl::Span<const PartCoord> wanted);
  void DropPlanUser(PlanState& plan);
  void ReleasePlan(PlanState& plan);

  // core_share.cc
  bool Share(Operation& op, const Transfer& transfer, const ClientPeer& peer);
  void HandOn(Operation& op, uint32_t page, uint32_t coord, const PartDescriptor& part, PartResult result);
  void DropClaims(Operation& op);
  void TakeShared(Operation& op);
  bool TakePart(Operation& op, const Operation::Awaited& waiting, Nanos now);
  void PullMyself(Operation& op, const Transfer& transfer);

  // core_flight.cc
  bool JoinFlight(Operation& op);
  void LeaveFlight(Operation& op);
  void LandFlight(Operation& leader);

  // core_store.cc
  void StartStore(Operation& op);
  void AdvanceStore(Operation& op);
  void ApplyOffer(Operation& op, Ask& ask);
  static uint32_t FrameParts(const Operation& op, const Ask& ask, uint64_t bytes_max);
  bool ServePuts();
  bool SendPuts(Operation& op, uint32_t index);
  bool FillInline(Operation& op, const PutFrame& frame);
  bool FillFromWindow(Operation& op, PutFrame& frame);
  bool SumPart(Ask& ask, uint64_t bytes, std::byte* to, uint32_t& crc);
  void DropPuts(Operation& op, Ask& ask, PartResult why);
  void ApplyPutReply(Operation& op, uint32_t index, absl::Span<const PartResult> results, PartResult failure);
  void FinishStore(Operation& op);
  void WakeStores();

  // core_admin.cc
  OpId StartAdmin(std::string_view node, uint32_t shard, FrameType type, ByteView body, Nanos deadline,
                  AdminDone done);
  void SendAdmin(Operation& op, FrameType type, ClientPeer& peer);  // One request with admin_body.
  void AdvanceAdmin(Operation& op);

  // core_agree.cc
  OpId StartAgree(const BlockHash& first_block, const AgreeRequest& request, Nanos deadline, AgreeDone done);
  OpId StartRecheck(PlanHandle handle, Nanos deadline, RecheckDone done);
  void SendRecheck(Operation& op);
  void AdvanceRecheck(Operation& op);

  ClientCoreOptions options_;
  // Reads the clock and remembers it for what follows at once: 16 parts of 64 KiB out of a mapped arena take
  // 57 us, and each look at the clock 40 ns of them.
  Nanos Tick() { return ticked_ = clock_.Now(); }

  Clock& clock_;
  Nanos ticked_ = 0;  // Of the last Tick.
  Transport& transport_;
  Random& random_;
  ClientCounters counters_;
  PeerTable peers_;
  RequestTable requests_;
  std::array<uint8_t, 32> namespace_secret_{};

  std::vector<std::unique_ptr<Operation>> ops_;
  std::vector<uint32_t> free_ops_;
  std::vector<Operation*> active_;
  std::vector<Operation*> dirty_;
  std::vector<Operation*> again_;           // Had more to do than one Poll's share.
  std::vector<Operation*> put_queue_;       // Stores with parts to send, the next to have a share first.
  uint64_t put_budget_ = kPutBytesPerPoll;  // What is left of this Poll's.
  std::vector<Operation*> completed_;
  std::vector<Operation*> delivering_;
  struct Refused {
    std::function<void()> callback;
    std::optional<CallScope> scope;  // It was asked for in.
  };
  std::vector<Refused> refused_;
  CallScope* scope_ = nullptr;  // What is begun belongs to it.
  uint64_t op_sequence_ = 0;
  bool closing_ = false;  // Nothing is begun any more, and nobody connected to.
  std::vector<std::unique_ptr<PlanState>> plans_;
  std::vector<uint32_t> free_plans_;
  uint64_t plan_sequence_ = 0;
  uint64_t plan_id_base_ = 0;  // Plan ids on the wire: random start, then counting.
  Nanos next_timer_ = kNever;
  uint64_t round_stamp_ = 0;

  struct PendingRelease {
    PeerId connection = 0;
    uint64_t plan_id = 0;
  };
  std::vector<PendingRelease> releases_;
  struct PendingNote {
    PeerId connection = 0;
    NoteRequest::Superseded superseded;
    NoteRequest::Stranded stranded;  // plan_id 0: the other kind.
  };
  std::vector<PendingNote> notes_;
  Nanos flush_at_ = kNever;  // A RELEASE waits in the transport for the next frame, or for Poll by then.

  // Scratch, reused.
  Bytes body_;
  ChainRequest chain_request_;
  ReadRequest read_request_;
  LookupReply lookup_reply_;
  PutRequest put_request_;
  PutReply put_reply_;
  IdList id_list_;
  NoteRequest note_request_;
  std::vector<uint32_t> picked_bytes_;
  std::vector<Segment> pull_target_;
  std::vector<Segment> share_target_;
  std::vector<ConstSegment> put_payload_;
  std::vector<ConstSegment> part_source_;
  std::vector<uint32_t> slots_;
  struct RoundPiece {
    uint32_t ask = 0;
    Piece piece;
  };
  std::vector<RoundPiece> round_pieces_;
  std::vector<Transfer> load_order_;
  std::vector<PeerTable::Failure> failures_;
};

}  // namespace cistern
