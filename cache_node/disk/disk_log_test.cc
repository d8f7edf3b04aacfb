#include "cache_node/disk/disk_log.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "cache_node/disk/log_world.h"

namespace cistern {
namespace {

using Found = LogWorld::Found;
constexpr uint64_t kSeed = 20263;
constexpr uint32_t kPart = 60'000;

TEST(DiskLog, FindsWhatItWasGivenAtOnceAndAfterARestart) {
  LogWorld world(kSeed);
  world.Open();
  for (uint64_t i = 0; i < 50; ++i) world.Put(i, kPart);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kRight);
  world.Settle();
  EXPECT_EQ(world.log->counters().durable_parts, 50u);
  EXPECT_EQ(world.log->counters().durable_bytes, 50u * kPart);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kRight);
  world.Open();
  EXPECT_TRUE(world.log->recovering());
  world.Settle();
  EXPECT_EQ(world.log->counters().durable_parts, 50u);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kRight);
}

// F40: odd lengths keep their bytes, alone and as parts of one record.
TEST(DiskLog, F40_OddLengths) {
  LogWorld world(kSeed);
  world.faults.short_io = 0.3;
  world.Open();
  uint64_t number = 0;
  for (const uint32_t length : {1u, 511u, 512u, 4095u, 4096u, 4097u, 65537u, kPartBytesMax}) {
    world.Put(number, length);
    world.Settle();
    EXPECT_EQ(world.Get(number++, length), Found::kRight) << length;
    if (length > 65537) continue;
    world.Put(number, length, 7);
    world.Settle();
    for (uint32_t part = 0; part < 7; ++part)
      EXPECT_EQ(world.Get(number, length, part), Found::kRight) << length;
    ++number;
  }
}

TEST(DiskLog, GoesOnInTheNextExtentAndReadsFootersAtAStart) {
  LogWorld world(kSeed, 6);
  world.Open();
  for (uint64_t i = 0; i < 300; ++i) world.Put(i, 500'000);
  world.Settle();
  EXPECT_GE(world.log->table().count(), 3u);
  world.Open();
  world.Settle();
  EXPECT_EQ(world.log->counters().recovered_parts, 300u);
  for (uint64_t i = 0; i < 300; i += 17) EXPECT_EQ(world.Get(i, 500'000), Found::kRight);
}

// F42, and the log's own promise: full, it makes room by dropping the oldest, and keeps what is read.
TEST(DiskLog, ReclaimKeepsWhatWasReadAndDropsTheOldest) {
  LogWorld world(kSeed, 4);
  world.Open();
  for (uint64_t i = 0; i < 40; ++i) world.Put(i, 500'000);
  world.Settle();
  for (uint64_t i = 0; i < 20; ++i) world.log->Used(world.Block(i).hash, {});
  for (uint64_t i = 40; i < 900; ++i) {
    world.Put(i, 500'000);
    if (i % 20 == 0) {
      for (uint64_t kept = 0; kept < 20; ++kept) world.log->Used(world.Block(kept).hash, {});
    }
  }
  world.Settle();
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(world.Get(i, 500'000), Found::kRight) << i;
  for (uint64_t i = 21; i < 40; ++i) EXPECT_EQ(world.Get(i, 500'000), Found::kMiss) << i;
  for (uint64_t i = 850; i < 900; ++i) EXPECT_EQ(world.Get(i, 500'000), Found::kRight) << i;
  EXPECT_GT(world.log->counters().copied_bytes, 0u);
  EXPECT_GT(world.log->counters().reclaimed_extents, 2u);
  EXPECT_LE(world.log->table().count(), 4u);
  world.Open();
  world.Settle();
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(world.Get(i, 500'000), Found::kRight) << i;
}

TEST(DiskLog, DropsStayDroppedOverAStart) {
  LogWorld world(kSeed, 5);
  world.Open();
  for (uint64_t i = 0; i < 30; ++i) world.Put(i, kPart, 2);
  world.Settle();
  const BlockHash gone[] = {world.Block(3).hash, world.Block(9).hash};
  EXPECT_EQ(world.Drop(gone), 4u);
  EXPECT_EQ(world.Get(3, kPart), Found::kMiss);
  world.Settle();
  world.Put(9, kPart);  // Written again: that is newer than the drop.
  world.Reopen();
  EXPECT_EQ(world.Get(3, kPart), Found::kMiss);
  EXPECT_EQ(world.Get(3, kPart, 1), Found::kMiss);
  EXPECT_EQ(world.Get(9, kPart), Found::kRight);
  EXPECT_EQ(world.Get(9, kPart, 1), Found::kMiss);
  EXPECT_EQ(world.Get(4, kPart), Found::kRight);
  world.log->DropAll();
  EXPECT_EQ(world.log->counters().durable_parts, 0u);
  world.Settle();
  world.Turns(20);
  world.Put(77, kPart);
  world.Reopen();
  EXPECT_EQ(world.Get(4, kPart), Found::kMiss);
  EXPECT_EQ(world.Get(77, kPart), Found::kRight);
}

// F10: what a failed write was to keep is not there, and nothing of it is ever given out.
TEST(DiskLog, F10_FailedWritesLeaveNothingAndTheLogRecovers) {
  LogWorld world(kSeed);
  world.Open();
  for (uint64_t i = 0; i < 10; ++i) world.Put(i, kPart);
  world.Settle();
  world.disk->faults.writes_fail = true;
  for (uint64_t i = 10; i < 20; ++i) (void)world.Append(i, kPart);
  world.Settle();
  EXPECT_TRUE(world.log->degraded());
  EXPECT_EQ(world.log->counters().lost_parts, 10u);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kRight);
  for (uint64_t i = 10; i < 20; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kMiss);
  EXPECT_EQ(world.Append(30, kPart), DiskLog::Appended::kOff);
  EXPECT_FALSE(world.warnings.empty());
  world.disk->faults.writes_fail = false;
  for (int i = 0; i < 100'000 && world.log->degraded(); ++i) world.Turn();
  EXPECT_FALSE(world.log->degraded());  // By itself.
  world.Put(30, kPart);
  world.Reopen();
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kRight);
  EXPECT_EQ(world.Get(30, kPart), Found::kRight);
}

TEST(DiskLog, AFullDiskGoesOnWithTheExtentsItHas) {
  LogWorld world(kSeed, 16);
  world.faults.full_after = 4 * uint64_t{kExtentBytes};
  world.Open();
  for (uint64_t i = 0; i < 800; ++i) world.Put(i, 500'000);
  world.Settle();
  EXPECT_EQ(world.log->table().count(), 4u);
  EXPECT_GT(world.log->counters().no_space_errors, 0u);
  EXPECT_EQ(world.Get(799, 500'000), Found::kRight);
  EXPECT_FALSE(world.log->degraded());
}

// F38: (a) a torn tail costs its record alone; (b) an I/O error is no end of the log.
TEST(DiskLog, F38_TornTailAndReadErrorAreToldApart) {
  LogWorld world(kSeed);
  world.Open();
  for (uint64_t i = 0; i < 20; ++i) world.Put(i, kPart);
  world.Settle();
  world.Close();
  const std::vector<std::byte> ones(4096, std::byte{1});
  const uint64_t record = kPageBytes + RoundUpTo(kPart, kPageBytes);
  MemoryFiles::Set(world.files->files[0], kPageBytes + 20 * record - 4096, ones.data(), ones.size());
  world.Open();
  world.Settle();
  EXPECT_EQ(world.log->counters().torn_tails, 1u);
  for (uint64_t i = 0; i < 19; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kRight);
  EXPECT_EQ(world.Get(19, kPart), Found::kMiss);

  world.Open();
  world.disk->faults.reads_fail = true;
  world.Settle();
  world.disk->faults.reads_fail = false;
  EXPECT_GT(world.log->counters().read_errors, 0u);
  EXPECT_FALSE(world.warnings.empty());
  EXPECT_EQ(world.log->counters().durable_parts, 0u);
  world.Put(50, kPart);  // And the unreadable extent is not written over.
  world.Reopen();
  for (uint64_t i = 0; i < 19; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kRight);
  EXPECT_EQ(world.Get(50, kPart), Found::kRight);
}

// F37: one flipped bit anywhere, sealed or not: never wrong bytes, always a start, and all but few parts
// stay.
TEST(DiskLog, F37_FlippedBitsCostAtMostTheirRecords) {
  for (uint64_t round = 0; round < 250; ++round) {
    LogWorld world(kSeed + round);
    world.Open();
    for (uint64_t i = 0; i < 30; ++i) world.Put(i, 20'000);
    world.Settle();
    if (round % 2 == 0) {
      world.log->Stop();
      for (int i = 0; i < 1000 && !world.log->IsIdle(); ++i) world.Turn();
    }
    world.Close();
    MemoryFiles::File& file = world.files->files[0];
    const uint64_t record = kPageBytes + RoundUpTo(20'000, kPageBytes);
    uint64_t at = world.random.Below(kPageBytes + 30 * record);
    if (round % 5 == 1) at = kExtentBytes - 1 - world.random.Below(8192);
    if (round % 5 == 2) at = world.random.Below(kPageBytes);
    std::byte byte{};
    MemoryFiles::Get(file, at, &byte, 1);
    byte ^= std::byte{1} << world.random.Below(8);
    MemoryFiles::Set(file, at, &byte, 1);
    ASSERT_TRUE(world.TryOpen().ok()) << "round " << round << " at " << at;
    world.Settle();
    uint64_t right = 0;
    for (uint64_t i = 0; i < 30; ++i) {
      const Found found = world.Get(i, 20'000);
      right += found == Found::kRight;
      if (found == Found::kRight) continue;
      world.log->Forget(world.Block(i).hash, {}, DiskEntry{}, DiskLog::Why::kPayload);
    }
    EXPECT_GE(right, 29u) << "round " << round << " at " << at;
    world.Put(100, 20'000);
    world.Settle();
    EXPECT_EQ(world.Get(100, 20'000), Found::kRight);
  }
}

// F33: killed anywhere, with or without the power going too: what was durable is there, nothing is wrong, and
// no space is lost for good.
void KillAnywhere(uint64_t seed) {
  SCOPED_TRACE(seed);
  LogWorld world(seed, 6);
  world.faults.delay = 0.3;
  world.faults.short_io = 0.05;
  constexpr uint32_t kSmall = 3000;  // So that all of it fits, however many starts leave extents half empty.
  std::set<uint64_t> durable;
  uint64_t next = 0;
  world.Open();
  for (int round = 0; round < 200; ++round) {
    std::vector<uint64_t> fresh;
    const uint64_t turns = world.random.Below(30);
    for (uint64_t turn = 0; turn < turns; ++turn) {
      for (uint64_t i = world.random.Below(4); i > 0; --i) {
        if (world.Append(next, kSmall) == DiskLog::Appended::kOk) fresh.push_back(next++);
      }
      world.Turn();
    }
    for (const uint64_t number : fresh) {
      const DiskEntry* entry = world.log->Find(world.Block(number).hash, {});
      if (entry != nullptr && entry->durable) durable.insert(number);
    }
    round % 3 == 0 ? world.PowerCut() : world.Close();
    ASSERT_TRUE(world.TryOpen().ok()) << "round " << round;
    ASSERT_EQ(world.log->counters().lost_extents, 0u) << "round " << round;
    world.Settle();
    world.Turns(20);  // Recovered extents get their footers, and sparse ones are emptied.
    for (const uint64_t number : durable) {
      if (round % 10 != 9 && next - number > 300) continue;
      ASSERT_EQ(world.Get(number, kSmall), Found::kRight)
          << "round " << round << " part " << number << " of " << next;
    }
    uint64_t in_extents = 0;
    for (const auto& [file, extent] : world.log->table().all()) in_extents += extent.live_parts;
    ASSERT_EQ(in_extents, world.log->counters().durable_parts);
    ASSERT_GE(in_extents, durable.size());
  }
  EXPECT_GT(durable.size(), 2000u);
  EXPECT_LE(world.files->files.size(), 7u);
}
TEST(DiskLog, F33_KilledAnywhereNothingDurableIsLost) { KillAnywhere(kSeed); }
// Killed before a free header is synced, used again, and the power goes.
TEST(DiskLog, F33_AFreeHeaderThatWasNeverSyncedIsNotBelieved) { KillAnywhere(28); }

TEST(DiskLog, RefusesTooLittleCapacity) {
  LogWorld world(kSeed, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(world.TryOpen()));
}

void BeginWhenThereIsRoom(LogWorld& world, const LogWorld::Made& made) {
  for (int i = 0; i < 100'000; ++i) {
    const DiskLog::Appended begun = world.log->Begin(made.header, made.data);
    if (begun == DiskLog::Appended::kOk) return;
    CISTERN_CHECK(begun == DiskLog::Appended::kNoRoom);  // No extent yet.
    world.Turn();
  }
  CISTERN_CHECK(false);
}

// A large record is copied in steps: nothing of it is found, or written, before its end; then all of it is.
TEST(DiskLog, ARecordThatIsCopiedInStepsIsThereAtItsEnd) {
  LogWorld world(kSeed);
  world.Open();
  LogWorld::Made made = world.Make(1, 100'000, 3);
  BeginWhenThereIsRoom(world, made);
  std::optional<DiskLog::Appended> end;
  int steps = 0;
  for (; !end.has_value() && steps < 100; ++steps) {
    EXPECT_EQ(world.Get(1, 100'000), LogWorld::Found::kMiss);
    uint64_t budget = 30'000;
    end = world.log->Continue(budget);
    world.Turns(10);  // Longer than a batch waits for company.
    if (!end.has_value()) {
      EXPECT_EQ(budget, 0u);
      EXPECT_EQ(world.log->writer().written_bytes(), 0u) << "half a record on its way to the disk";
    }
  }
  EXPECT_EQ(end, DiskLog::Appended::kOk);
  EXPECT_EQ(steps, 10);
  world.Reopen();
  for (uint32_t part = 0; part < 3; ++part) EXPECT_EQ(world.Get(1, 100'000, part), LogWorld::Found::kRight);
}

TEST(DiskLog, StepsFindDamageAndStepAsideForOthers) {
  LogWorld world(kSeed);
  world.Open();
  LogWorld::Made made = world.Make(1, 100'000);
  made.bytes[0][99'999] ^= std::byte{1};
  BeginWhenThereIsRoom(world, made);
  uint64_t budget = 10;
  EXPECT_EQ(world.log->Continue(budget), std::nullopt);
  world.Put(2, 5000);  // Ends it first.
  EXPECT_EQ(world.log->Continue(budget), DiskLog::Appended::kDamaged);
  LogWorld::Made next = world.Make(3, 100'000);
  BeginWhenThereIsRoom(world, next);
  // F04: dropped while it is copied, it does not come after all; nor does the drop wait for the copy.
  budget = 10;
  EXPECT_EQ(world.log->Continue(budget), std::nullopt);
  EXPECT_EQ(world.Drop({&next.header.block.hash, 1}), 0u);
  budget = 10;
  EXPECT_EQ(world.log->Continue(budget), std::nullopt);
  budget = UINT64_MAX;
  EXPECT_EQ(world.log->Continue(budget), DiskLog::Appended::kOk);
  EXPECT_EQ(world.Get(3, 100'000), LogWorld::Found::kMiss);
  world.Reopen();
  EXPECT_EQ(world.Get(1, 100'000), LogWorld::Found::kMiss);
  EXPECT_EQ(world.Get(2, 5000), LogWorld::Found::kRight);
  EXPECT_EQ(world.Get(3, 100'000), LogWorld::Found::kMiss);
}

// F10: a write fails while another record is being copied: that one is lost with the rest, and its extent is
// not.
TEST(DiskLog, F10_AWriteThatFailsTakesARecordUnderWayAlong) {
  LogWorld world(kSeed);
  world.Open();
  world.Put(1, 5000);
  world.disk->faults.nth_write = 1;
  world.disk->faults.nth_error = EIO;
  LogWorld::Made made = world.Make(2, 100'000);
  world.Turns(1);
  uint64_t budget = 10;
  BeginWhenThereIsRoom(world, made);
  EXPECT_EQ(world.log->Continue(budget), std::nullopt);
  const uint64_t errors = world.log->counters().write_errors;
  for (int i = 0; i < 100 && world.log->counters().write_errors == errors; ++i) world.Turn();
  budget = UINT64_MAX;
  const std::optional<DiskLog::Appended> end = world.log->Continue(budget);
  EXPECT_NE(end, std::nullopt);
  world.Settle();
  EXPECT_NE(world.Get(2, 100'000), LogWorld::Found::kRefused);
}

}  // namespace
}  // namespace cistern
