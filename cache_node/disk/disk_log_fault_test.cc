// What the disk log makes of a disk that fails in one place, of drops, of clocks that jump, of used memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/log_world.h"

namespace cistern {
namespace {

using Found = LogWorld::Found;
constexpr uint64_t kSeed = 20268;
constexpr uint32_t kPart = 60'000;

// F10: the n-th write fails, in three ways. What is not durable is not there, and nothing of it is given out.
TEST(DiskLogFaults, F10_TheNthWriteFails) {
  for (const int error : {ENOSPC, EIO, 0}) {
    for (uint64_t nth = 1; nth <= 8; ++nth) {
      LogWorld world(kSeed + nth);
      world.Open();
      world.disk->faults.nth_write = nth;
      world.disk->faults.nth_error = error;
      std::vector<uint64_t> taken;
      for (uint64_t i = 0; i < 12; ++i) {
        if (world.Append(i, kPart) == DiskLog::Appended::kOk) taken.push_back(i);
        world.Turns(4);  // A write of its own for each.
      }
      world.Settle();
      EXPECT_EQ(world.disk->faults.nth_write, 0u) << "the fault never came";
      const DiskLogCounters& counters = world.log->counters();
      EXPECT_EQ(counters.lost_parts > 0, error != 0) << nth;
      EXPECT_EQ(counters.write_errors > 0, error != 0) << nth;
      EXPECT_EQ(counters.no_space_errors > 0, error == ENOSPC) << nth;
      EXPECT_EQ(counters.durable_parts + counters.lost_parts, taken.size());
      uint64_t right = 0;
      for (const uint64_t i : taken) {
        const Found found = world.Get(i, kPart);
        EXPECT_NE(found, Found::kRefused) << i;
        right += found == Found::kRight;
      }
      EXPECT_EQ(right, counters.durable_parts);
      const uint64_t durable = counters.durable_parts;
      world.Open();
      world.Settle();
      EXPECT_GE(world.log->counters().durable_parts, durable);
      for (const uint64_t i : taken) EXPECT_NE(world.Get(i, kPart), Found::kRefused) << i;
    }
  }
}

// A write fails just when the next extent is open and the ring has no room for its first record: that extent
// is not left behind.
TEST(DiskLogFaults, F10_AnExtentThatHasNotBegunGoesOnAfterAFailedWrite) {
  constexpr uint32_t kLarge = 500'000;
  constexpr uint64_t kRecord = kPageBytes + RoundUpTo(kLarge, kPageBytes);
  LogWorld world(kSeed, 4);
  world.Open();
  uint64_t next = 0;
  // So many more fit into the extent as into the ring.
  do world.Put(next++, kLarge);
  while (world.log->writer().head_room() > (world.ring_bytes / kRecord + 1) * kRecord);
  world.Settle();
  world.Turns(20);
  const FileId full = world.log->writer().head_extent();
  world.disk->faults.delay = 1;
  while (world.Append(next, kLarge) == DiskLog::Appended::kOk) ++next;
  const FileId fresh = world.log->writer().head_extent();
  ASSERT_NE(fresh, full);
  ASSERT_NE(fresh, UINT32_MAX);
  world.Turns(4);
  world.disk->faults.delay = 0;
  world.disk->faults.writes_fail = true;
  world.Settle();
  ASSERT_TRUE(world.log->degraded());
  world.disk->faults.writes_fail = false;
  for (int i = 0; i < 100'000 && world.log->degraded(); ++i) world.Turn();
  world.Put(next, kLarge);
  world.Settle();
  EXPECT_EQ(world.log->Find(world.Block(next).hash, {})->extent, fresh);
  for (const auto& [file, extent] : world.log->table().all())
    EXPECT_EQ(extent.state == ExtentState::kOpen, file == fresh) << file;
}

// F39: a drop of everything is one record, however much there was; its space is free again soon, and lookups
// do not get slower by what is gone.
TEST(DiskLogFaults, F39_ADropOfAllIsOneRecordAndFreesItsSpace) {
  LogWorld world(kSeed, 8);
  world.Open();
  constexpr uint64_t kParts = 20'000;
  for (uint64_t i = 0; i < kParts; ++i) world.Put(i, 2000);
  world.Settle();
  const uint64_t written = world.log->writer().written_bytes();
  const uint32_t used = world.log->table().count() - world.log->table().free_count();
  ASSERT_GE(used, 3u);
  EXPECT_EQ(world.log->DropAll(), kParts);
  EXPECT_EQ(world.Get(7, 2000), Found::kMiss);
  world.Turns(4000);  // 2 s.
  EXPECT_LE(world.log->writer().written_bytes() - written,
            4 * kPageBytes + FooterBytes(kEntriesPerExtentMax));
  EXPECT_LE(world.log->table().count() - world.log->table().free_count(), 2u);
  world.Open();
  world.Settle();
  EXPECT_EQ(world.log->counters().durable_parts, 0u);
}

// S11: what pads a record on disk is zeros, never what lay in the write ring before.
TEST(DiskLogFaults, S11_PaddingCarriesNothingOfOthers) {
  LogWorld world(kSeed, 4);
  world.Open();
  const std::vector<std::byte> marker(300'000, std::byte{0xa5});
  for (int i = 0; i < 60; ++i) {  // More than the ring.
    LogWorld::Made made = world.Make(static_cast<uint64_t>(i), 300'000);
    made.header.parts[0].crc = Crc32c(marker.data(), marker.size());
    made.data[0] = marker.data();
    while (world.log->Append(made.header, made.data) != DiskLog::Appended::kOk) world.Turn();
  }
  world.Settle();
  for (uint64_t i = 1000; i < 1400; ++i) world.Put(i, 4000 + static_cast<uint32_t>(i), 3);
  world.Settle();
  world.log->Stop();
  for (int i = 0; i < 1000 && !world.log->IsIdle(); ++i) world.Turn();
  const std::vector<std::byte> run(16, std::byte{0xa5});
  for (uint64_t i = 1000; i < 1400; ++i) {
    const DiskEntry* entry = world.log->Find(world.Block(i).hash, {});
    ASSERT_NE(entry, nullptr);
    const uint64_t begin = uint64_t{entry->page} * kPageBytes;
    std::vector<std::byte> record(
        kPageBytes + RoundUpTo(3 * RoundUpTo(4000 + static_cast<uint32_t>(i), kPartAlign), kPageBytes));
    MemoryFiles::Get(world.files->files[entry->extent], begin, record.data(), record.size());
    EXPECT_EQ(std::search(record.begin(), record.end(), run.begin(), run.end()), record.end()) << i;
  }
}

// While the disk does not answer, there is nothing to wake up for but its answer.
TEST(DiskLogFaults, ASlowDiskLetsTheShardSleep) {
  LogWorld world(kSeed, 4);
  world.Open();
  world.Put(0, kPart);
  world.Settle();
  world.disk->faults.delay = 1;
  for (uint64_t i = 1; i <= kWritesInFlightMax + 1; ++i) {
    ASSERT_EQ(world.Append(i, kPart), DiskLog::Appended::kOk);
    world.Turns(6);  // A batch of its own for each; the last one has to wait.
  }
  EXPECT_GT(world.log->writer().NextWake(), world.clock.Now());
  for (int i = 0; i < 200; ++i) {  // Some of them end, in any order, and those before them do not.
    world.disk->faults.delay = i % 3 == 0 ? 0.8 : 1;
    world.Turn();
    world.clock.Advance(10 * kMillisecond);
    world.log->Poll();
    EXPECT_GT(world.log->writer().NextWake(), world.clock.Now()) << i;
  }
  world.disk->faults.delay = 0;
  world.Settle();
  EXPECT_EQ(world.log->counters().durable_parts, kWritesInFlightMax + 2);
}

// Damage is told by place, with what to do next, and a disk full of it does not fill the log.
TEST(DiskLogFaults, F37_DamageIsToldAFewLinesAtATime) {
  LogWorld world(kSeed, 4);
  world.Open();
  constexpr uint64_t kParts = 40;
  for (uint64_t i = 0; i < kParts; ++i) world.Put(i, kPart);
  world.Settle();
  world.Close();
  const uint64_t record = kPageBytes + RoundUpTo(kPart, kPageBytes);
  const std::byte ones{0xff};
  for (uint64_t i = 0; i + 1 < kParts; ++i)  // The last one stays: what is behind it would be a torn tail.
    MemoryFiles::Set(world.files->files[0], kPageBytes + i * record + kPageBytes + 100, &ones, 1);
  world.warnings.clear();
  world.Open();
  world.Settle();
  EXPECT_EQ(world.log->counters().corrupt_payloads, kParts - 1);
  ASSERT_EQ(world.warnings.size(), kDamageLinesMax);
  EXPECT_THAT(world.warnings[1],
              testing::AllOf(testing::HasSubstr(absl::StrCat("extent 0 at ", kPageBytes + record)),
                             testing::HasSubstr("payload"), testing::HasSubstr("cistern fsck")));
  world.clock.Advance(kDamageLinesEvery);
  world.Turn();
  ASSERT_EQ(world.warnings.size(), kDamageLinesMax + 1);
  EXPECT_THAT(world.warnings.back(), testing::HasSubstr(absl::StrCat(kParts - 1 - kDamageLinesMax, " more")));
  // And what a reader finds later.
  const DiskEntry place = *world.log->Find(world.Block(kParts - 1).hash, {});
  world.log->Forget(world.Block(kParts - 1).hash, {}, place, DiskLog::Why::kHeader);
  EXPECT_THAT(world.warnings.back(),
              testing::HasSubstr(absl::StrCat("at ", kPageBytes + (kParts - 1) * record)));
}

// A machine that slept, or a clock set by hand: deadlines pass at once, and that is all.
TEST(DiskLogFaults, ClocksThatJumpLoseNothing) {
  LogWorld world(kSeed, 4);
  world.faults.delay = 0.4;
  world.Open();
  std::vector<uint64_t> taken;
  for (uint64_t i = 0; i < 400; ++i) {
    if (world.Append(i, kPart) == DiskLog::Appended::kOk) taken.push_back(i);
    world.Turn();
    if (i % 7 == 0) world.clock.Advance((i % 2 == 0 ? 86'400 : 1) * kSecond);
  }
  world.Settle();
  EXPECT_GT(taken.size(), 300u);
  EXPECT_FALSE(world.log->degraded());
  for (const uint64_t i : taken) EXPECT_EQ(world.Get(i, kPart), Found::kRight) << i;
  // Another start, with a clock that begins anew: nothing on disk depends on it.
  world.clock.Set(kSecond);
  world.Open();
  world.Settle();
  EXPECT_EQ(world.log->counters().durable_parts, taken.size());
}

}  // namespace
}  // namespace cistern
