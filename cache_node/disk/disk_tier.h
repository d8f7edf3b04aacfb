#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache_node/disk/disk_log.h"
#include "cache_node/disk/retention_book.h"
#include "cache_node/ram_tier.h"
#include "cache_node/wait_groups.h"
#include "core/node_stats.h"

namespace cistern {

inline constexpr uint32_t kStageReadBytes = 1u << 20;  // Neighbours on disk are read together up to this.
inline constexpr uint32_t kStageGroupsMax = 1024;
// Wanted at once, of all plans; more are misses, and counted. Their table has its room from the start:
// growing to 262,144 took 57 ms in one turn.
inline constexpr size_t kStageWantsMax = 65536;
// Copied into the log, out of it and from one of its extents to another, together; a hit waits so long. Parts
// are cut for it: at 1 MiB a turn a hit's p99 beside a busy disk was 360 us.
inline constexpr uint64_t kDiskCopyBytesPerTurn = 128u << 10;
static_assert(kReclaimBytesPerTurn < kDiskCopyBytesPerTurn);
// What RAM gives up next is written before it has to go, so that no eviction copies a part whole: so much of
// it, at most an eighth of the RAM, and so many parts; or one tail, whatever its size.
inline constexpr uint64_t kCleanAheadBytes = 8u << 20;
inline constexpr uint32_t kCleanAheadParts = 64;
// Looked at for it in one turn: tails that a newer one replaced are not written, and there may be any number.
inline constexpr uint32_t kCleanAheadLooksMax = 1024;
inline constexpr uint64_t kBacklogBytesMax = 64u << 20;  // Of parts that wait in RAM for room in the log.

struct DiskTierOptions {
  bool write_through = true;       // False: parts are written when RAM has no more room for them.
  uint64_t daily_write_bytes = 0;  // Of the device (endurance); 0: no limit.
  size_t stage_wants_max = kStageWantsMax;
  bool manifest_rebuilt = false;      // For the counter.
  std::function<int64_t()> unix_now;  // Wall clock, asked once at the start; null: the system's.
  DiskLogOptions log;
};

// What the disk tier did, besides DiskLogCounters.
struct DiskTierCounters {
  uint64_t stored_parts = 0;
  uint64_t demoted_parts = 0;  // Part of stored_parts: at their eviction from RAM, or right before it.
  uint64_t offload_dropped_parts =
      0;                         // Should have been written and were not (F42): the sum of the next six.
  uint64_t dropped_backlog = 0;  // The log was behind.
  uint64_t dropped_degraded = 0;
  uint64_t dropped_budget = 0;
  uint64_t dropped_retention = 0;  // kTimedBlocksMax blocks have a time to live already.
  uint64_t dropped_names = 0;      // Of more layouts or coordinates than the log can know.
  uint64_t dropped_damaged = 0;    // Their bytes in RAM had changed.
  uint64_t staged_parts = 0;
  uint64_t staged_bytes = 0;
  uint64_t stage_reads = 0;         // Reads of the disk for them.
  uint64_t stage_failed_parts = 0;  // No room in RAM, not readable, or too many at once.
  uint64_t collisions = 0;          // Equal hash, other fingerprint (F01).
  uint64_t clean_ahead_looks = 0;
};

// The NVMe tier of one shard, beside its RamTier: what is published goes to the log (write-through) or what
// is evicted does (on-demotion), and what a plan wants comes back into RAM, in groups.
//
// Owner: NodeShard. Thread: the shard's; everything happens in Poll. Lifetime: owns disk, manifest and log;
// the RAM tier and the clock outlive it.
class DiskTier {
 public:
  // Errors as of DiskLog::Open.
  static absl::StatusOr<std::unique_ptr<DiskTier>> Open(DiskTierOptions options, std::unique_ptr<Disk> disk,
                                                        std::unique_ptr<Manifest> manifest, Clock& clock,
                                                        uint64_t seed);
  ~DiskTier();
  void Attach(RamTier& ram);

  // --- finding. kOk, kMiss or kLayout.
  PartResult Judge(const BlockKey& block, PartCoord coord, const LayoutId& layout, uint32_t part_bytes);

  // Whether all of the tail behind a block is here, or in RAM.
  bool HasTail(const BlockHash& block) const;
  bool HasTails() const { return log_->HasTails(); }

  // --- storing
  // Parts that have just become visible in RAM; neighbours of one block share a record. depths: of their
  // blocks.
  void Published(absl::Span<const SlotId> slots, absl::Span<const uint32_t> depths);
  // Puts would have to wait for the log: whoever can hold them back should.
  bool IsBehind() const { return blocked_ && !waiting_.empty() && !log_->degraded(); }
  uint64_t waiting_bytes() const { return waiting_bytes_; }  // In RAM for their turn, or for room in the log.

  // --- staging
  // A group of parts that one plan waits for; 0: kStageGroupsMax groups are open.
  uint64_t OpenGroup() { return groups_.Open(); }
  // The part is Judge'd kOk. It is charged to the tenant that asks for it first.
  void Want(uint64_t group, const BlockKey& block, PartCoord coord, const LayoutId& layout,
            uint32_t part_bytes, TenantIndex tenant);
  // A leased slot that the group keeps until it is taken.
  void Hold(uint64_t group, SlotId slot) { groups_.Hold(group, slot); }
  // No more parts: reads begin.
  void CloseGroup(uint64_t group);
  // A group whose parts are all in RAM, or have failed. Its held slots are leased, now for the caller.
  bool TakeReady(uint64_t& group, std::vector<SlotId>& held) { return groups_.TakeReady(group, held); }

  // --- retention
  // A part with a time to live was used in RAM.
  void Touched(SlotId slot);
  // A block that is on disk and has a time to live is wanted for longer.
  void Retain(const BlockHash& block, const Retention& retention);
  Manifest& manifest() { return *manifest_; }
  void Warn(const std::string& line) const {
    if (options_.log.log) options_.log.log(true, line);
  }

  bool Poll();
  Nanos NextWake() const;
  int WaitFd() const { return disk_->WaitFd(); }
  // Gives up what waits, makes the rest durable and seals the log. Waits for the disk, at most `patience`.
  void Stop(Nanos patience);

  void AddStats(NodeStats& stats) const;
  const DiskTierCounters& counters() const { return counters_; }
  DiskLog& log() { return *log_; }
  std::string Describe() const { return disk_->Describe(); }

 private:
  struct Waiting {
    SlotId slot = kNoSlot;
    uint32_t depth = 0;
  };
  struct WantKey {
    BlockHash hash;
    uint32_t coord = 0;
    friend bool operator==(const WantKey&, const WantKey&) = default;
    template <typename H>
    friend H AbslHashValue(H state, const WantKey& key) {
      return H::combine(std::move(state), key.hash.Prefix64(), key.coord);
    }
  };
  struct WantedPart {
    BlockKey block;
    LayoutId layout;
    uint32_t part_bytes = 0;
    TenantIndex tenant = 0;
    DiskEntry place;
    std::vector<uint64_t> groups;
  };
  struct ReadOp {
    uint32_t extent = 0;
    uint32_t begin = 0, end = 0;
    std::vector<WantKey> parts;
    uint32_t bytes() const { return end - begin; }
  };
  // What a read has brought; without a buffer, what the log still had in memory. Goes into RAM part by part.
  struct Landing {
    ReadOp op;
    std::byte* buffer = nullptr;
    size_t next = 0;  // Of op.parts.
  };
  // The part of the first landing that is being copied, as its record describes it.
  struct Arriving {
    SlotId slot = kNoSlot;  // Reserved.
    HolderId holder = 0;
    uint32_t at = 0;  // In the record.
    uint32_t length = 0, crc = 0, depth = 0;
    TailMark tail;
    uint32_t copied = 0, copied_crc = 0;
  };

  DiskTier(DiskTierOptions options, std::unique_ptr<Disk> disk, std::unique_ptr<Manifest> manifest,
           Clock& clock, uint64_t seed);

  // disk_tier.cc
  // A record to be: of the first `taken` slots of some, as far as they are not stored yet.
  struct Record {
    RecordHeader header;
    std::vector<const std::byte*> data;
    size_t taken = 0;
    SlotId first = kNoSlot;
    uint64_t bytes = 0;
  };
  Record RecordOf(absl::Span<const SlotId> slots, uint32_t depth);
  bool MayStore(const Record& record);
  void Ended(DiskLog::Appended how, size_t parts, uint64_t bytes);
  void Evicting(absl::Span<const SlotId> slots);
  void CleanAhead();
  bool TakeBudget(uint64_t bytes);
  uint64_t DrainWaiting(uint64_t bytes_max);
  void TakeWaiting(size_t count);
  void Drop(uint64_t& reason, uint64_t parts);
  // disk_retention.cc
  uint32_t UnixNow() const;
  uint32_t UnixEndOf(SlotId slot) const;
  bool WriteEnd(SlotId slot);
  bool HolderFor(const BlockHash& block, uint16_t flags, TenantIndex tenant, HolderId& holder) const;
  void SetEnd(SlotId slot, uint32_t tick);
  void SweepExpired();
  BlockHash HashOf(SlotId slot) const;
  bool IsStored(SlotId slot);

  // disk_stage.cc
  void QueueReads(std::vector<WantKey> wants);
  void PumpReads();
  bool StillThere(ReadOp& op);
  void Landed(ReadOp op, std::byte* buffer, int error);
  uint64_t LandOn(uint64_t bytes_max);
  const std::byte* RecordAt(const Landing& landing, const WantKey& key);
  bool Arrive(const WantKey& key, const std::byte* record, SlotId& slot);
  SlotId Arrived(const WantKey& key);
  void GiveUpArriving();
  void EndWant(const WantKey& key, SlotId slot);

  const DiskTierOptions options_;
  Clock& clock_;
  Random random_;
  std::unique_ptr<DiskLog> log_;  // Destroyed last of the three: the disk may still move its memory.
  std::unique_ptr<Manifest> manifest_;
  std::unique_ptr<Disk> disk_;
  std::optional<RetentionBook> book_;  // Over manifest_.
  int64_t unix_base_ = 0;              // Wall clock at the boot clock's 0, as it was at the start (F46).
  Nanos sweep_at_ = 0;
  std::optional<BlockHash> expiring_;  // Its parts leave the index,
  uint64_t expiring_from_ = 0;         // from this coordinate on.
  RamTier* ram_ = nullptr;
  DiskTierCounters counters_;

  std::deque<Waiting> waiting_;  // Leased slots, oldest first.
  uint64_t waiting_bytes_ = 0;
  bool blocked_ = false;  // The log had no room when it was last asked.
  struct Copying {
    size_t taken = 0;  // Of waiting_, from the front.
    size_t parts = 0;
    uint64_t bytes = 0;
  };
  std::optional<Copying> copying_;  // Into the log.
  uint64_t backlog_bytes_ = 0;
  ClassId evicted_class_ = kNoClass;  // Of what was evicted since the last look ahead.
  double budget_bytes_ = 0;
  Nanos budget_at_ = 0;
  bool stopping_ = false;

  WaitGroups groups_{kStageGroupsMax};
  absl::flat_hash_map<uint64_t, std::vector<WantKey>> fresh_;  // First wanted by a group that is not closed.
  absl::flat_hash_map<WantKey, WantedPart> wants_;
  std::deque<ReadOp> reads_;
  std::optional<ReadMemory> read_memory_;
  std::deque<Landing> landings_;  // Oldest first; at most kReadsMax have a buffer.
  std::optional<Arriving> arriving_;
};

}  // namespace cistern
