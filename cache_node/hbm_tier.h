#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "cache_node/node_counters.h"
#include "cache_node/ram_tier.h"
#include "cache_node/wait_groups.h"
#include "core/arena.h"
#include "core/clock.h"
#include "core/node_stats.h"
#include "core/random.h"
#include "gpu/device_arena.h"

namespace cistern {

class DiskTier;

inline constexpr uint64_t kHbmMoveBytesPerSecond = uint64_t{4} << 30;  // Default of HbmTierOptions.
inline constexpr size_t kPromotionsMax = 1024;        // Waiting to go up; more are forgotten, and counted.
inline constexpr uint32_t kHbmCopiesMax = 16;         // Of this tier in flight.
inline constexpr uint64_t kHbmUpBytesMax = 1u << 20;  // In flight upward, or one part.
// Checked in one turn, of what has moved either way: a hit waits so long. Parts are cut for it.
inline constexpr uint32_t kHbmCheckBytesPerTurn = 128u << 10;
inline constexpr uint32_t kHbmGroupsMax = 1024;  // Plans that wait for parts from the device.
static_assert(kHbmCopiesMax <= kDeviceCopiesMax);

struct HbmTierOptions {
  uint64_t bytes = 0;  // At least one slab.
  // What promotions and demotions may move, a second's worth at once. Plans that wait are served first and
  // use it up, never wait for it.
  uint64_t move_bytes_per_s = kHbmMoveBytesPerSecond;
};

struct HbmCounters {
  uint64_t promoted_parts = 0, promoted_bytes = 0;
  uint64_t demoted_parts = 0;  // To RAM, because nobody else had them.
  uint64_t staged_parts = 0, staged_bytes = 0;
  uint64_t stage_failed_parts = 0;
  uint64_t dropped_promotions = 0;  // kPromotionsMax waited.
  uint64_t dropped_demotions = 0;   // Over the bandwidth, or RAM had no room.
  uint64_t corrupt_parts = 0;       // Bytes on the device, or on the way, had changed.
  uint64_t device_errors = 0;
};

// The device memory of one shard, above its RAM: what is used again goes up by value, what a plan wants and
// RAM has no more comes back, what must leave and is nowhere else goes down. Each move is checked by CRC-32C
// at its end; what does not agree is dropped, on the device or on the way.
//
// Slots, index, leases and eviction are a RamTier's whose payload lies on the device: its region here is
// address space that is never touched, but for the trailers. What leaves is what was used least recently,
// whatever policy RAM has: one that learns from requests is told of none here, and takes 22 bytes a part
// more. Owner: NodeShard. Thread: the shard's; everything happens in Poll, and evictions wait for one read of
// the device. Lifetime: the RAM tier, the disk tier and the clock outlive it.
class HbmTier {
 public:
  // InvalidArgument: less than one slab.
  static absl::StatusOr<std::unique_ptr<HbmTier>> Create(HbmTierOptions options,
                                                         std::unique_ptr<DeviceArena> device, Clock& clock,
                                                         Random& random);
  ~HbmTier();
  // disk: null: none.
  void Attach(RamTier& ram, DiskTier* disk);

  // kOk, kMiss or kLayout.
  PartResult Judge(const BlockKey& block, PartCoord coord, const LayoutId& layout, uint32_t part_bytes);
  // A part in RAM belongs to a run that is used again: it goes up, or is as recent here as there.
  void Used(SlotId ram_slot);

  // --- staging, as in DiskTier.
  uint64_t OpenGroup() { return groups_.Open(); }  // 0: kHbmGroupsMax are open.
  void Want(uint64_t group, const BlockHash& block, PartCoord coord);
  void Hold(uint64_t group, SlotId ram_slot) { groups_.Hold(group, ram_slot); }
  void CloseGroup(uint64_t group) { groups_.Close(group); }
  bool TakeReady(uint64_t& group, std::vector<SlotId>& held) { return groups_.TakeReady(group, held); }

  // While it is closed nothing goes up, nor does what is on its way arrive: RAM's parts are being dropped.
  void Close(bool closed);

  bool Poll();
  Nanos NextWake() const;
  void AddStats(NodeStats& stats) const;
  const HbmCounters& counters() const { return counters_; }
  RamTier& tier() { return *tier_; }
  DeviceArena& device() { return *device_; }

 private:
  enum class Direction : uint8_t { kUp, kDown };
  struct Copy {
    Direction direction = Direction::kUp;
    SlotId ram = kNoSlot;  // Up: leased. Down: reserved.
    SlotId hbm = kNoSlot;  // Up: reserved. Down: leased.
    uint64_t group = 0;    // Down.
  };
  // Of what has moved: how far, and the checksum so far.
  struct Check {
    Copy copy;
    uint32_t at = 0, crc = 0;
  };

  HbmTier(HbmTierOptions options, std::unique_ptr<DeviceArena> device, Clock& clock, MemoryRegion region);

  static BlockHash HashOf(const SlotTrailer& trailer);
  static PartKey KeyOf(const SlotTrailer& trailer);
  uint32_t Tick() const { return RamTier::TickOf(clock_.Now()); }
  bool TakeBudget(uint64_t bytes);
  void Spend(uint64_t bytes);
  void PumpDown();
  void PumpUp();
  bool HasCopyFree() const { return copies_.size() + checks_.size() < kHbmCopiesMax; }
  bool CheckOn();
  void Finish(const Check& check, bool ok);
  bool FinishUp(const Copy& copy, uint32_t crc);
  SlotId FinishDown(const Copy& copy, uint32_t crc);
  void EndWant(uint64_t group, SlotId ram_slot);
  void Demote(SlotId slot);
  void Evicting(SlotId slot) { Demote(slot); }
  void Evicting(absl::Span<const SlotId> slots) {
    for (const SlotId slot : slots) Demote(slot);
  }
  // Tenant and retention go along: a part has one owner and one end, in whatever tier it is.
  static void CopyRetention(RamTier& from, SlotId from_slot, RamTier& to, SlotId to_slot);
  static HolderId HolderLike(RamTier& from, SlotId from_slot, RamTier& to);

  const HbmTierOptions options_;
  Clock& clock_;
  std::unique_ptr<DeviceArena> device_;
  MemoryRegion region_;
  NodeCounters tier_counters_;
  std::unique_ptr<RamTier> tier_;  // Over region_.
  RamTier* ram_ = nullptr;
  DiskTier* disk_ = nullptr;
  HbmCounters counters_;

  // Blocks in RAM, oldest first. They are not leased while they wait: a tier above must not keep RAM from
  // making room.
  std::deque<std::pair<BlockHash, PartCoord>> promotions_;
  uint64_t up_bytes_ = 0;                           // In flight.
  std::deque<std::pair<uint64_t, SlotId>> wanted_;  // Group and leased slot of the device.
  absl::flat_hash_map<uint64_t, Copy> copies_;      // By the device's number.
  std::deque<Check> checks_;                        // Oldest first; with copies_ at most kHbmCopiesMax.
  std::vector<DeviceCopyDone> done_;
  std::vector<std::byte> check_;  // A piece that is read back.
  WaitGroups groups_{kHbmGroupsMax};
  bool closed_ = false;
  double budget_bytes_ = 0;
  Nanos budget_at_ = 0;
};

}  // namespace cistern
