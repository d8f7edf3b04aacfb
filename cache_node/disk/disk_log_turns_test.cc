// What reclaim writes again is copied in turns: how much a turn does, and what may happen between them.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache_node/disk/log_world.h"

namespace cistern {
namespace {

using Found = LogWorld::Found;
constexpr uint64_t kSeed = 20264;
constexpr uint32_t kPart = 500'000;
constexpr uint64_t kRead = 20;  // Parts that reclaim keeps.
static_assert(kPart > 4 * kReclaimBytesPerTurn);

class DiskLogTurns : public ::testing::Test {
 protected:
  DiskLogTurns() { world.Open(); }
  void UseThoseThatAreRead() {
    for (uint64_t i = 0; i < kRead; ++i) {
      for (uint32_t part = 0; part < 4; ++part) world.log->Used(world.Block(i).hash, PartCoord::Unpack(part));
    }
  }
  // Fills the log until reclaim is in the middle of one of those records.
  void UntilOneIsCarried(uint32_t parts = 1) {
    for (; next < 2000; ++next) {
      world.Put(next, kPart / parts, parts);
      if (next < kRead) continue;
      UseThoseThatAreRead();
      world.Turn();
      if (world.log->carried_in_turn() == kReclaimBytesPerTurn) return;
    }
    FAIL() << "nothing is ever carried";
  }
  // How many of them are where they were.
  uint64_t InExtent(uint32_t extent) const {
    uint64_t count = 0;
    for (uint64_t i = 0; i < kRead; ++i) {
      const DiskEntry* entry = world.log->Find(world.Block(i).hash, {});
      count += entry != nullptr && entry->extent == extent;
    }
    return count;
  }

  LogWorld world{kSeed, 4};
  uint64_t next = 0;
};

// A hit waits for no more than a turn: no record is written again in one.
TEST_F(DiskLogTurns, ReclaimCopiesSoMuchATurnAndNoMore) {
  UntilOneIsCarried();
  const uint64_t before = world.log->counters().copied_bytes;
  uint64_t turns = 1;
  for (; turns < 10'000 && world.log->counters().copied_bytes < before + 10 * kPart; ++turns) {
    world.Turn();
    ASSERT_LE(world.log->carried_in_turn(), kReclaimBytesPerTurn);
  }
  EXPECT_GE(turns * kReclaimBytesPerTurn, 10 * uint64_t{kPart});
  EXPECT_LE(turns, 30 * kPart / kReclaimBytesPerTurn) << "reclaim is behind";
  world.Reopen();
  for (uint64_t i = 0; i < kRead; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kRight) << i;
}

// The writer takes one record after the other; neither side waits for all of the other's.
TEST_F(DiskLogTurns, CallersAndReclaimTakeTurns) {
  UntilOneIsCarried();
  const uint64_t carried = world.log->counters().copied_bytes;
  uint64_t stored = 0;
  for (int turn = 0; turn < 10'000 && stored < 5; ++turn) {
    const LogWorld::Made made = world.Make(10'000 + stored, kPart);
    if (world.log->Begin(made.header, made.data) != DiskLog::Appended::kOk) {
      world.Turn();
      continue;
    }
    std::optional<DiskLog::Appended> end;
    for (int step = 0; step < 100 && !end.has_value(); ++step) {
      uint64_t budget = kReclaimBytesPerTurn;
      end = world.log->Continue(budget);
      if (!end.has_value()) world.Turn();
    }
    ASSERT_EQ(end, DiskLog::Appended::kOk);
    ++stored;
  }
  EXPECT_EQ(stored, 5u);
  const uint64_t records = (world.log->counters().copied_bytes - carried) / kPart;
  EXPECT_GE(records, 4u);
  EXPECT_LE(records, 6u);
  world.Reopen();
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(world.Get(10'000 + i, kPart), Found::kRight) << i;
  for (uint64_t i = 0; i < kRead; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kRight) << i;
}

// F04: what is dropped while it is written again does not come back with the last of its bytes, nor at a
// start.
TEST_F(DiskLogTurns, F04_WhatIsDroppedMeanwhileIsGone) {
  UntilOneIsCarried();
  std::vector<BlockHash> all;
  for (uint64_t i = 0; i < kRead; ++i) all.push_back(world.Block(i).hash);
  EXPECT_EQ(world.Drop(all), kRead);
  EXPECT_EQ(world.Drop(all), 0u);
  world.Turns(200);
  for (uint64_t i = 0; i < kRead; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kMiss) << i;
  world.Reopen();
  for (uint64_t i = 0; i < kRead; ++i) EXPECT_EQ(world.Get(i, kPart), Found::kMiss) << i;
}

// Blocks that are dropped and written again at once are dropped first.
TEST_F(DiskLogTurns, F04_ADropIsOlderThanWhatIsWrittenAfterIt) {
  world.Put(1, kPart);
  const LogWorld::Made other = world.Make(2, kPart), again = world.Make(1, kPart);
  ASSERT_EQ(world.log->Begin(other.header, other.data), DiskLog::Appended::kOk);
  EXPECT_EQ(world.Drop({&again.header.block.hash, 1}), 1u);
  uint64_t budget = UINT64_MAX;
  EXPECT_EQ(world.log->Continue(budget), DiskLog::Appended::kOk);
  ASSERT_EQ(world.log->Begin(again.header, again.data), DiskLog::Appended::kOk);
  EXPECT_EQ(world.log->Continue(budget), DiskLog::Appended::kOk);
  world.Reopen();
  EXPECT_EQ(world.Get(1, kPart), Found::kRight);
  EXPECT_EQ(world.Get(2, kPart), Found::kRight);
}

// F37: a part that changed on the disk is a miss; the others of its record are written again.
TEST_F(DiskLogTurns, F37_DamageCostsItsPartAlone) {
  constexpr uint32_t kLength = kPart / 4;
  for (; next < kRead; ++next) world.Put(next, kLength, 4);
  world.Settle();
  const DiskEntry third = *world.log->Find(world.Block(7).hash, PartCoord::Unpack(2));
  std::byte byte{};
  MemoryFiles::Get(world.files->files[third.extent], third.data_at() + 4711, &byte, 1);
  byte ^= std::byte{16};
  MemoryFiles::Set(world.files->files[third.extent], third.data_at() + 4711, &byte, 1);
  UntilOneIsCarried(4);
  for (int i = 0; i < 2000 && InExtent(third.extent) > 0; ++i) world.Turn();
  EXPECT_EQ(InExtent(third.extent), 0u);
  EXPECT_EQ(world.log->counters().corrupt_payloads, 1u);
  for (uint64_t i = 0; i < kRead; ++i) {
    for (uint32_t part = 0; part < 4; ++part) {
      const bool damaged = i == 7 && part == 2;
      EXPECT_EQ(world.Get(i, kLength, part), damaged ? Found::kMiss : Found::kRight) << i << " " << part;
    }
  }
}

// F37: what an extent holds that cannot be named any more goes in pieces, and its tails with it.
TEST(DiskLogDamage, F37_AnExtentWithoutItsFooterLeavesTheIndexInPieces) {
  constexpr uint32_t kParts = 240, kLength = 64;
  LogWorld world(kSeed, 4);
  world.Open();
  uint64_t next = 0;
  const auto put = [&] {
    LogWorld::Made made = world.Make(next, kLength, kParts);
    made.header.tail = {.parts = kParts};
    while (world.log->Append(made.header, made.data) != DiskLog::Appended::kOk) world.Turn();
    ++next;
  };
  while (next <= kEntriesPerExtentMax / kParts) put();
  world.Settle();
  const uint32_t extent = world.log->Find(world.Block(0).hash, {})->extent;
  const Extent& row = world.log->table().all().at(extent);
  ASSERT_EQ(row.state, ExtentState::kSealed);
  const uint64_t parts = row.live_parts;
  const std::byte damage{0x5a};
  for (const uint32_t from_end : {8u, 100u, 2000u})
    MemoryFiles::Set(world.files->files[extent], kExtentBytes - from_end, &damage, 1);
  const DiskLogCounters& counters = world.log->counters();
  const auto in_index = [&](uint64_t number) {
    size_t found = 0;
    for (uint32_t part = 0; part < kParts; ++part)
      found += world.log->Find(world.Block(number).hash, PartCoord::Unpack(part)) != nullptr;
    return found;
  };
  uint64_t before = 0, most = 0;
  for (int turn = 0; turn < 20'000 && counters.evicted_parts < parts; ++turn) {
    if (counters.corrupt_footers == 0) put();
    world.Turn();
    most = std::max(most, counters.evicted_parts - before);
    before = counters.evicted_parts;
    if (turn % 16 != 0) continue;
    const DiskTails::Tail* tail = world.log->FindTail(world.Block(1).hash);
    ASSERT_EQ(tail == nullptr ? 0 : tail->coords.size(), in_index(1)) << turn;
  }
  EXPECT_EQ(counters.corrupt_footers, 1u);
  EXPECT_EQ(counters.evicted_parts, parts);
  EXPECT_LE(most, 3 * CellTable<DiskEntry>::kPieceCells);
  EXPECT_EQ(world.log->FindTail(world.Block(0).hash), nullptr);
  EXPECT_EQ(in_index(0), 0u);
  world.Turns(200);
  EXPECT_GT(counters.reclaimed_extents, 0u) << "it is of use again";
  EXPECT_EQ(world.log->FindTail(world.Block(next - 1).hash)->coords.size(), kParts);
}

// Extents that are full of entries: what looks at all of them does so in turns.
class DiskLogEntries : public ::testing::Test {
 protected:
  static constexpr uint32_t kParts = 240, kLength = 64;
  DiskLogEntries() { world.Open(); }
  void Put() {
    const LogWorld::Made made = world.Make(next, kLength, kParts);
    RecordHeader header = made.header;
    while (world.log->Append(header, made.data) != DiskLog::Appended::kOk) world.Turn();
    ++next;
  }
  // The most by which a counter grows in one turn, until `done`.
  uint64_t MostInATurn(const uint64_t DiskLogCounters::*what, auto done) {
    uint64_t most = 0;
    for (int turn = 0; turn < 20'000 && !done(); ++turn) {
      const uint64_t before = world.log->counters().*what;
      world.Turn();
      most = std::max(most, world.log->counters().*what - before);
    }
    EXPECT_TRUE(done());
    return most;
  }

  LogWorld world{kSeed, 4};
  uint64_t next = 0;
};

TEST_F(DiskLogEntries, AStartTakesSoManyATurnAndServesMeanwhile) {
  while (next <= kEntriesPerExtentMax / kParts) Put();
  std::vector<BlockHash> gone;
  for (uint64_t i = 0; i < 4; ++i) gone.push_back(world.Block(i).hash);
  EXPECT_EQ(world.Drop(gone), 4 * kParts);
  world.Settle();
  world.Turns(20);
  const uint64_t parts = (next - 4) * kParts;
  world.Open();
  const LogWorld::Made other = world.Make(next, kLength);
  RecordHeader header = other.header;
  while (world.log->Append(header, other.data) != DiskLog::Appended::kOk) world.Turn();
  uint64_t turns = 0;
  const uint64_t most = MostInATurn(&DiskLogCounters::recovered_parts, [&] {
    ++turns;
    EXPECT_EQ(world.Get(next, kLength), Found::kRight);
    return !world.log->recovering();
  });
  EXPECT_LE(most, kEntriesPerTurn);
  EXPECT_GE(turns, parts / kEntriesPerTurn);
  EXPECT_EQ(world.log->counters().recovered_parts, parts);
  EXPECT_EQ(world.Get(3, kLength), Found::kMiss);
  EXPECT_EQ(world.Get(4, kLength, kParts - 1), Found::kRight);
}

// What is dropped while its extent is half taken stays dropped.
TEST_F(DiskLogEntries, F04_ADropBetweenTwoTurnsOfAStartHolds) {
  while (next <= kEntriesPerExtentMax / kParts) Put();
  world.Settle();
  for (const bool all : {false, true}) {
    world.Open();
    for (int i = 0; i < 1000 && world.log->counters().recovered_parts < 3000; ++i) world.Turn();
    ASSERT_TRUE(world.log->recovering());
    const BlockHash gone[] = {world.Block(2).hash, world.Block(130).hash};
    all ? world.log->DropAll() : world.Drop(gone);
    for (int start = 0; start < 2; ++start) {
      world.Settle();
      world.Turns(20);
      for (const uint64_t i : {2, 130}) EXPECT_EQ(world.Get(i, kLength, 17), Found::kMiss) << i;
      for (const uint64_t i : {1, 129})
        EXPECT_EQ(world.Get(i, kLength, 17), all ? Found::kMiss : Found::kRight) << i;
      world.Open();
    }
    world.Settle();
  }
}

TEST_F(DiskLogEntries, ReclaimLooksAtSoManyATurn) {
  uint64_t looked_at = 0;
  for (int turn = 0; turn < 20'000 && world.log->counters().reclaimed_extents == 0; ++turn) {
    if (looked_at == 0) Put();
    world.Turn();
    ASSERT_LE(world.log->entries_in_turn(), kEntriesPerTurn);
    looked_at += world.log->entries_in_turn();
  }
  EXPECT_GE(looked_at, kEntriesPerExtentMax / kParts * kParts);
  EXPECT_GT(world.log->counters().evicted_parts, kEntriesPerTurn);
  EXPECT_EQ(world.log->counters().corrupt_footers, 0u);
}

// F10: a write that fails takes what is under way along; nothing of it is found, and the log goes on.
TEST_F(DiskLogTurns, F10_AWriteThatFailsMeanwhileLeavesNoHalfRecord) {
  UntilOneIsCarried();
  world.disk->faults.writes_fail = true;
  for (int i = 0; i < 100 && !world.log->degraded(); ++i) world.Turn();
  EXPECT_TRUE(world.log->degraded());
  world.disk->faults.writes_fail = false;
  for (int i = 0; i < 100'000 && world.log->degraded(); ++i) world.Turn();
  world.Turns(200);
  for (uint64_t i = 0; i < next; ++i) EXPECT_NE(world.Get(i, kPart), Found::kRefused) << i;
  for (uint64_t i = 5000; i < 5300; ++i) world.Put(i, kPart);
  world.Reopen();
  EXPECT_EQ(world.Get(5299, kPart), Found::kRight);
}

}  // namespace
}  // namespace cistern
