// A process that is killed between a write and its sync leaves pages that the next start reads and a power
// cut still takes back. What such a start does must be right either way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache_node/disk/log_world.h"

namespace cistern {
namespace {

using ::testing::IsEmpty;
using Found = LogWorld::Found;
constexpr uint64_t kSeed = 20275;
constexpr uint32_t kPart = 500'000;
constexpr uint32_t kTrailer = kExtentBytes - kPageBytes;

// A power cut that takes all it can.
void TakeBack(LogWorld& world) {
  world.Close();
  for (auto& [id, file] : world.files->files) {
    for (const auto& [offset, before] : file.unsynced)
      MemoryFiles::Set(file, offset, before.data(), before.size());
    file.unsynced.clear();
  }
}
bool IsUnsynced(LogWorld& world, FileId file, uint64_t offset) {
  return world.files->files[file].unsynced.contains(offset);
}
bool SaysFree(const MemoryFiles::File& file) {
  std::byte page[kPageBytes];
  MemoryFiles::Get(file, 0, page, kPageBytes);
  const absl::StatusOr<ExtentHeader> header = DecodeExtentHeader(page);
  return header.ok() && header->free;
}
void ExpectNothingLost(LogWorld& world) {
  world.warnings.clear();
  world.Open();
  world.Settle();
  EXPECT_EQ(world.log->counters().lost_extents, 0u);
  EXPECT_THAT(world.warnings, IsEmpty());
}

TEST(DiskLogUnsynced, AFreeHeaderThatAPowerCutTakesBackIsNotLost) {
  for (const int puts : {0, 1, 200}) {
    SCOPED_TRACE(puts);
    LogWorld world(kSeed, 4);
    world.Open();
    for (uint64_t i = 0; !IsUnsynced(world, 0, 0) || !SaysFree(world.files->files[0]); ++i) {
      ASSERT_LT(i, 2000u);
      (void)world.Append(i, kPart);
      world.Turn();
    }
    world.Open();  // Killed.
    for (int i = 0; i < puts; ++i) world.Put(3000 + static_cast<uint64_t>(i), kPart);
    TakeBack(world);
    ExpectNothingLost(world);
  }
}

TEST(DiskLogUnsynced, AFooterThatAPowerCutTakesBackIsNotLost) {
  for (const bool synced : {false, true}) {
    SCOPED_TRACE(synced);
    LogWorld world(kSeed, 4);
    world.Open();
    for (uint64_t i = 0; i < 10; ++i) world.Put(i, kPart);
    world.log->Stop();
    for (int i = 0; !IsUnsynced(world, 0, kTrailer) || !IsUnsynced(world, 0, 0); ++i) {
      ASSERT_LT(i, 100);
      world.Turn();
    }
    world.Open();  // Killed.
    world.disk->faults.delay = synced ? 0 : 1;
    world.Turns(20);
    EXPECT_EQ(world.log->counters().recovered_parts, 10u);
    TakeBack(world);
    ExpectNothingLost(world);
    for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(world.Get(i, kPart), synced ? Found::kRight : Found::kMiss);
  }
}

// What reclaim copied lies in an extent with a footer, and neither was synced: what it copied from is not
// emptied before they are.
TEST(DiskLogUnsynced, CopiesAreSyncedBeforeTheirOriginalsGo) {
  constexpr uint64_t kWanted = 40, kSeeds = 2;
  uint64_t met = 0;
  for (uint64_t seed = kSeed; seed < kSeed + kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    LogWorld world(seed, 4);
    world.Open();
    for (uint64_t i = 0; i < kWanted; ++i) world.Put(i, kPart);
    world.Settle();
    for (uint64_t i = 0; i < kWanted; ++i) world.log->Used(world.Block(i).hash, {});
    for (uint64_t i = kWanted; world.log->counters().copied_bytes == 0; ++i) {
      ASSERT_LT(i, 2000u);
      (void)world.Append(i, kPart);
      world.Turn();
    }
    while (world.log->counters().copied_bytes < (kWanted - 8) * kPart) world.Turn();
    while (world.log->counters().copied_bytes < kWanted * kPart) world.log->Poll();  // No time for a sync.
    const DiskEntry last = *world.log->Find(world.Block(kWanted - 1).hash, {});
    world.log->Stop();
    const auto unsynced = [&] {
      return IsUnsynced(world, last.extent, kTrailer) && IsUnsynced(world, last.extent, last.record_at());
    };
    for (int i = 0; i < 100 && !unsynced(); ++i) world.log->Poll();
    met += unsynced();
    world.Open();  // Killed.
    for (uint64_t i = 5000; !SaysFree(world.files->files[0]); ++i) {
      ASSERT_LT(i, 7000u);
      world.Put(i, kPart);
    }
    TakeBack(world);
    ExpectNothingLost(world);
    for (uint64_t i = 0; i < kWanted; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kRight) << i;
  }
  EXPECT_GT(met, 0u);
}

}  // namespace
}  // namespace cistern
