// Extents that are not those the log wrote: gone, older copies, another log's. Never served, always told, and
// never seen where a crash is all there was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cache_node/disk/log_world.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using Found = LogWorld::Found;
constexpr uint64_t kSeed = 20271;
constexpr uint32_t kPart = 500'000;

void PutAll(LogWorld& world, uint64_t from, uint64_t to) {
  for (uint64_t i = from; i < to; ++i) world.Put(i, kPart);
  world.Settle();
}
void StopInGoodOrder(LogWorld& world) {
  world.log->Stop();
  for (int i = 0; i < 10'000 && !world.log->IsIdle(); ++i) world.Turn();
  world.Close();
  world.warnings.clear();
}
// Which of the numbers lie in that extent.
std::set<uint64_t> In(LogWorld& world, FileId file, uint64_t from, uint64_t to) {
  std::set<uint64_t> in;
  for (uint64_t i = from; i < to; ++i) {
    const DiskEntry* entry = world.log->Find(world.Block(i).hash, {});
    if (entry != nullptr && entry->extent == file) in.insert(i);
  }
  return in;
}
// Opens it, and expects that so many extents are lost, for that reason, and what they held with them.
void ExpectLost(LogWorld& world, uint64_t extents, const char* why, const std::set<uint64_t>& gone) {
  world.Open();
  world.Settle();
  EXPECT_EQ(world.log->counters().lost_extents, extents);
  ASSERT_THAT(world.warnings, SizeIs(extents));
  for (const std::string& line : world.warnings) {
    EXPECT_THAT(line, HasSubstr(why));
    EXPECT_THAT(line, HasSubstr("cistern fsck"));
  }
  for (const uint64_t i : gone) EXPECT_EQ(world.Get(i, kPart), Found::kMiss) << i;
}

TEST(DiskLogLost, AFileThatIsGoneIsToldOnceAndTheRestIsServed) {
  LogWorld world(kSeed, 6);
  world.Open();
  PutAll(world, 0, 300);
  const std::set<uint64_t> gone = In(world, 0, 0, 300);
  ASSERT_GT(gone.size(), 100u);
  StopInGoodOrder(world);
  world.files->files.erase(0);
  ExpectLost(world, 1, "extent 0 at 0", gone);
  for (uint64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(world.Get(i, kPart), gone.contains(i) ? Found::kMiss : Found::kRight) << i;
  }
  world.Put(1000, kPart);
  world.Reopen();
  EXPECT_EQ(world.log->counters().lost_extents, 0u);
  EXPECT_EQ(world.Get(1000, kPart), Found::kRight);
}

TEST(DiskLogLost, AnOlderCopyIsNotServed) {
  LogWorld world(kSeed, 4);
  world.Open();
  PutAll(world, 0, 200);
  const std::set<uint64_t> then = In(world, 0, 0, 200);
  ASSERT_GT(then.size(), 100u);
  const MemoryFiles::File copy = world.files->files[0];
  PutAll(world, 200, 900);  // It is emptied and used again.
  std::set<uint64_t> gone = In(world, 0, 200, 900);
  for (const uint64_t i : then) {
    if (world.Get(i, kPart) == Found::kMiss) gone.insert(i);
  }
  StopInGoodOrder(world);
  world.files->files[0] = copy;
  ExpectLost(world, 1, "an older copy", gone);
  PutAll(world, 2000, 2500);  // Its place is used again.
  EXPECT_EQ(world.Get(2499, kPart), Found::kRight);
  StopInGoodOrder(world);
  ExpectLost(world, 0, "", {});
}

TEST(DiskLogLost, AnotherLogsExtentIsNotServed) {
  LogWorld world(kSeed), other(kSeed + 1);
  world.Open();
  other.Open();
  PutAll(world, 0, 150);
  PutAll(other, 1000, 1150);
  const std::set<uint64_t> gone = In(world, 0, 0, 150);
  std::set<uint64_t> strange = In(other, 0, 1000, 1150);
  ASSERT_EQ(world.log->UseOf(0).life, other.log->UseOf(0).life) << "else it would be an older or a later one";
  strange.insert(gone.begin(), gone.end());
  StopInGoodOrder(world);
  StopInGoodOrder(other);
  world.files->files[0] = other.files->files[0];
  ExpectLost(world, 1, "another log's file", strange);
}

TEST(DiskLogLost, FilesThatChangedPlacesAreNotServed) {
  LogWorld world(kSeed, 6);
  world.Open();
  PutAll(world, 0, 300);
  std::set<uint64_t> gone = In(world, 0, 0, 300);
  gone.merge(In(world, 1, 0, 300));
  StopInGoodOrder(world);
  std::swap(world.files->files[0], world.files->files[1]);
  ExpectLost(world, 2, "another extent's file", gone);
}

TEST(DiskLogLost, AFileOfZerosIsToldWhereRecordsWere) {
  LogWorld world(kSeed, 6);
  world.Open();
  PutAll(world, 0, 200);
  const std::set<uint64_t> gone = In(world, 0, 0, 200);
  StopInGoodOrder(world);
  world.files->files[0].pieces.clear();
  ExpectLost(world, 1, "nothing in its file", gone);
}

// An extent that was emptied and is used again, and the file as it was in between.
struct UsedAgain {
  FileId file = 0;
  MemoryFiles::File freed;
  std::string row;            // Of its earlier use, when that was sealed.
  std::set<uint64_t> before;  // What its earlier use held.
};
UsedAgain UseAgain(LogWorld& world) {
  UsedAgain used;
  PutAll(world, 0, 200);
  used.before = In(world, 0, 0, 200);
  used.row = world.values[ExtentRowKey(0)];
  const uint64_t life = world.log->UseOf(0).life;
  for (uint64_t i = 200;; ++i) {
    world.Put(i, kPart);
    const Extent& extent = world.log->table().all().at(0);
    if (extent.state == ExtentState::kFree) used.freed = world.files->files[0];
    if (extent.state == ExtentState::kOpen && extent.use.life > life && extent.live_parts > 10) break;
    CISTERN_CHECK(i < 2000);
  }
  CISTERN_CHECK(used.freed.bytes > 0);
  world.Settle();
  return used;
}
void TearPage(MemoryFiles::File& file, uint32_t number) {
  std::byte page[kPageBytes];
  MemoryFiles::Get(file, uint64_t{number} * kPageBytes, page, kPageBytes);
  page[7] ^= std::byte{1};
  MemoryFiles::Set(file, uint64_t{number} * kPageBytes, page, kPageBytes);
}
void TearHeader(MemoryFiles::File& file) { TearPage(file, 0); }

// It is free, quietly, and goes on as one that was never lost.
void ExpectFreeAndUsedAgain(LogWorld& world, FileId file) {
  world.Turns(100);
  EXPECT_EQ(world.log->table().all().at(file).state, ExtentState::kFree);
  PutAll(world, 3000, 3600);
  EXPECT_EQ(world.Get(3599, kPart), Found::kRight);
  StopInGoodOrder(world);
  ExpectLost(world, 0, "", {});
}

UsedAgain UseAgainTorn(LogWorld& world) {
  world.Open();
  UsedAgain used = UseAgain(world);
  world.Close();
  world.files->files[0] = used.freed;
  TearHeader(world.files->files[0]);
  return used;
}

// The power goes while a use begins: its header is torn, and records and trailer of the use before are there.
TEST(DiskLogLost, AUseThatBeganWithATornHeaderIsNeitherLostNorTheOneBefore) {
  LogWorld world(kSeed, 4);
  const UsedAgain used = UseAgainTorn(world);
  world.Open();
  world.Settle();
  EXPECT_THAT(world.warnings, SizeIs(0));
  EXPECT_EQ(world.log->counters().lost_extents, 0u);
  for (const uint64_t i : used.before) {
    const DiskEntry* entry = world.log->Find(world.Block(i).hash, {});
    EXPECT_TRUE(entry == nullptr || entry->extent != 0) << i;
  }
  ExpectFreeAndUsedAgain(world, 0);
}

// The same where the manifest lags, so that its row is of the use before, or has none: the last page knows.
TEST(DiskLogLost, AUseThatBeganWithATornHeaderIsNotTheOneBeforeWhateverTheManifestMissed) {
  for (const bool row : {false, true}) {
    SCOPED_TRACE(row);
    LogWorld world(kSeed, 4);
    const UsedAgain used = UseAgainTorn(world);
    world.values.erase(ExtentRowKey(0));
    if (row) world.values[ExtentRowKey(0)] = used.row;
    world.warnings.clear();
    world.Open();
    world.Settle();
    EXPECT_THAT(world.warnings, SizeIs(0));
    EXPECT_EQ(In(world, 0, 0, 2000), std::set<uint64_t>());
    ExpectFreeAndUsedAgain(world, 0);
  }
}

// A sealed extent whose pages at both ends went bad: what lies between is found by life and nonce.
TEST(DiskLogLost, ASealedExtentWhoseEndsAreBadKeepsTheRest) {
  LogWorld world(kSeed, 4);
  world.Open();
  PutAll(world, 0, 200);
  const std::set<uint64_t> there = In(world, 0, 0, 200);
  ASSERT_GT(there.size(), 100u);
  StopInGoodOrder(world);
  for (const uint32_t page : {0u, 1u, kExtentBytes / kPageBytes - 1}) TearPage(world.files->files[0], page);
  for (int start = 0; start < 3; ++start) {
    world.Open();
    world.Settle();
    EXPECT_EQ(world.log->counters().lost_extents, 0u);
    EXPECT_EQ(world.log->counters().corrupt_headers, start == 0 ? 2u : 0u) << start;
    uint64_t right = 0;
    for (const uint64_t i : there) right += world.Get(i, kPart) == Found::kRight;
    EXPECT_EQ(right, there.size() - 1) << start;
    world.Turns(200);  // Its header is written again, and it is sealed.
  }
}

// A page that went bad later: the first record says whose the records are, not the trailer of the use before.
TEST(DiskLogLost, AnOpenExtentWithABadHeaderKeepsItsRecords) {
  LogWorld world(kSeed, 4);
  world.Open();
  UseAgain(world);
  const std::set<uint64_t> there = In(world, 0, 0, 2000);
  ASSERT_GT(there.size(), 10u);
  world.Close();
  TearHeader(world.files->files[0]);
  world.Open();
  world.Settle();
  EXPECT_EQ(world.log->counters().lost_extents, 0u);
  for (const uint64_t i : there) EXPECT_EQ(world.Get(i, kPart), Found::kRight) << i;
}

// Nor is the first record needed: the manifest says whose records to look for. What cannot be read is told.
TEST(DiskLogLost, AnOpenExtentWhoseFirstTwoPagesAreBadKeepsTheRest) {
  for (const bool again : {false, true}) {
    SCOPED_TRACE(again);
    LogWorld world(kSeed, 4);
    world.Open();
    if (again) {
      UseAgain(world);
    } else {
      PutAll(world, 0, 20);
    }
    const std::set<uint64_t> there = In(world, 0, 0, 2000);
    ASSERT_GT(there.size(), 10u);
    for (const uint64_t i : there) ASSERT_TRUE(world.log->Find(world.Block(i).hash, {})->durable);
    world.Close();
    TearHeader(world.files->files[0]);
    TearPage(world.files->files[0], 1);
    world.warnings.clear();
    for (int start = 0; start < 3; ++start) {
      world.Open();
      world.Settle();
      EXPECT_EQ(world.log->counters().lost_extents, 0u);
      EXPECT_EQ(world.log->counters().corrupt_headers, start == 0 ? 2u : 0u) << start;
      EXPECT_EQ(world.warnings.size(), 2u);
      uint64_t right = 0;
      for (const uint64_t i : there) right += world.Get(i, kPart) == Found::kRight;
      EXPECT_EQ(right, there.size() - 1) << start;
      world.Turns(200);  // Its header is written again, and it is sealed.
    }
  }
}

// Nothing of its first use can be read: it is free, and not without a word.
TEST(DiskLogLost, AnOpenExtentOfWhichNothingCanBeReadIsTold) {
  for (const bool blank : {false, true}) {
    SCOPED_TRACE(blank);
    LogWorld world(kSeed, 4);
    world.Open();
    PutAll(world, 0, 1);
    world.Close();
    if (blank) {
      world.files->files[0].pieces.clear();  // As a power cut leaves what was never synced.
    } else {
      TearHeader(world.files->files[0]);
      TearPage(world.files->files[0], 1);
    }
    world.Open();
    world.Settle();
    EXPECT_EQ(world.log->counters().lost_extents, 0u);
    EXPECT_EQ(world.log->counters().corrupt_headers, blank ? 0u : 1u);
    EXPECT_THAT(world.warnings, SizeIs(blank ? 0 : 1));
    ExpectFreeAndUsedAgain(world, 0);
  }
}

// The manifest is told behind the extents: whatever it has missed, nothing is taken for lost.
void LagBehind(uint64_t seed) {
  SCOPED_TRACE(seed);
  LogWorld world(seed, 6);
  world.faults.delay = 0.3;
  constexpr uint32_t kSmall = 3000;  // So that all of it fits, however many starts leave extents half empty.
  std::vector<ManifestValues> before = {{}};
  uint64_t next = 0;
  for (int round = 0; round < 200; ++round) {
    world.Open();
    world.Settle();
    world.Turns(20);  // Extents are emptied, and used again.
    for (const std::string& line : world.warnings) EXPECT_THAT(line, testing::Not(HasSubstr("in its place")));
    world.warnings.clear();
    for (uint64_t i = next > 100 ? next - 100 : 0; i < next; ++i)
      ASSERT_EQ(world.Get(i, kSmall), Found::kRight) << "round " << round << " part " << i;
    for (uint64_t i = world.random.Below(60); i > 0; --i) world.Put(next++, kSmall);
    world.Settle();
    before.push_back(world.values);
    round % 2 == 0 ? world.PowerCut() : world.Close();
    world.values = before[before.size() - 1 - world.random.Below(std::min<size_t>(before.size(), 4))];
  }
}
TEST(DiskLogLost, AManifestThatLagsLosesNothing) { LagBehind(kSeed); }
// Killed before a free header is synced, which its row says already when the power goes.
TEST(DiskLogLost, AManifestThatIsAheadOfACacheLosesNothing) { LagBehind(7); }

// A full log that is killed soon after each of several starts: what they stored is there, and what is pinned.
TEST(DiskLogLost, WhatAStartStoredOutlivesItsEndBeforeThereIsRoom) {
  constexpr uint64_t kRounds = 4, kPinned = 40, kStarts = kSpareExtentsMax - 1;
  uint64_t durable = 0, pinned = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    LogWorld world(kSeed + round, 4);
    world.Open();
    for (uint64_t i = 0; i < kPinned; ++i) {
      LogWorld::Made made = world.Make(i, kPart);
      made.header.retention = RetentionFlags({.pin = PinKind::kHard});
      while (world.log->Append(made.header, made.data) != DiskLog::Appended::kOk) world.Turn();
    }
    PutAll(world, kPinned, 400);
    world.faults.delay = 0.8;
    for (uint64_t start = 0; start < kStarts; ++start) {
      world.Open();
      while (world.log->recovering()) world.Turn();
      world.Put(1000 + start, kPart);
      const DiskEntry* entry = world.log->Find(world.Block(1000 + start).hash, {});
      for (int i = 0; i < 10'000 && !entry->durable; ++i) {
        world.Turn();
        entry = world.log->Find(world.Block(1000 + start).hash, {});
        ASSERT_NE(entry, nullptr);
      }
    }
    world.Open();
    world.Settle();
    world.Turns(300);
    for (uint64_t i = 0; i < kStarts; ++i) durable += world.Get(1000 + i, kPart) == Found::kRight;
    for (uint64_t i = 0; i < kPinned; ++i) pinned += world.Get(i, kPart) == Found::kRight;
    world.faults.delay = 0;
    world.Turns(5000);
    EXPECT_LE(world.files->files.size(), 4u);
  }
  EXPECT_EQ(durable, kRounds * kStarts);
  EXPECT_EQ(pinned, kRounds * kPinned);
}

// A log that has to become smaller, killed at any moment: a file that it removed itself is not missed.
TEST(DiskLogLost, FilesThatTheLogRemovedAreNotMissed) {
  for (uint64_t round = 0; round < 5; ++round) {
    LogWorld world(kSeed + round, 6), smaller(kSeed + round, 3);
    world.Open();
    for (uint64_t i = 0; i < 620; ++i) world.Put(i, kPart);
    world.Settle();
    world.Close();
    smaller.files = world.files;
    smaller.values = world.values;
    smaller.faults.delay = 0.8;
    smaller.Open();
    const size_t files = smaller.files->files.size();
    for (int i = 0; i < 100'000 && smaller.files->files.size() == files; ++i) smaller.Turn();
    ASSERT_LT(smaller.files->files.size(), files) << "round " << round;
    smaller.Turns(static_cast<int>(smaller.random.Below(400)));
    smaller.Close();
    smaller.Open();
    EXPECT_EQ(smaller.log->counters().lost_extents, 0u) << "round " << round;
  }
}

}  // namespace
}  // namespace cistern
