// What was dropped does not come back, whatever becomes of the record that says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "cache_node/disk/log_world.h"

namespace cistern {
namespace {

using Found = LogWorld::Found;
constexpr uint64_t kSeed = 20291;
constexpr uint32_t kPart = 500'000;
constexpr uint64_t kGone = 0, kStays = 1;  // In the oldest extent.

class DiskLogDrops : public ::testing::Test {
 protected:
  DiskLogDrops() { world.Open(); }

  uint32_t ExtentOf(uint64_t number) const {
    const DiskEntry* entry = world.log->Find(world.Block(number).hash, {});
    return entry == nullptr ? UINT32_MAX : entry->extent;
  }
  // Until the log is in its next extent.
  void FillExtent() {
    const uint32_t head = world.log->writer().head_extent();
    while (world.log->writer().head_extent() == head || head == UINT32_MAX) {
      world.Put(next++, kPart);
      if (head == UINT32_MAX) break;
    }
    world.Settle();
  }
  void Drop(uint64_t from, uint64_t to) {
    std::vector<BlockHash> blocks;
    for (uint64_t i = from; i < to; ++i) blocks.push_back(world.Block(i).hash);
    world.Drop(blocks);
    world.Turns(4);
    world.Settle();
  }
  // A block of the oldest extent is dropped; `holder` has the record that says so, and, once it is full,
  // little else, so that it leaves before the older one.
  void MakeHolder() {
    FillExtent();
    while (ExtentOf(next - 1) == ExtentOf(kGone)) world.Put(next++, kPart);
    oldest = ExtentOf(kGone);
    holder = ExtentOf(next - 1);
    CISTERN_CHECK(holder != oldest);
    Drop(kGone, kGone + 1);
    const uint64_t first = next;
    while (ExtentOf(next - 1) == holder) world.Put(next++, kPart);
    world.Settle();
    Drop(first, next - 4);
    oldest_use = world.log->UseOf(oldest);
    holder_use = world.log->UseOf(holder);
  }
  // Of its footer, or of one page from `at` on.
  void Damage(uint32_t file, uint64_t at) {
    std::byte byte{};
    MemoryFiles::Get(world.files->files[file], at, &byte, 1);
    byte ^= std::byte{0x5a};
    MemoryFiles::Set(world.files->files[file], at, &byte, 1);
  }
  void UntilHolderHasLeft() {
    const uint64_t before = world.log->counters().reclaimed_extents;
    for (int i = 0; i < 2000 && world.log->counters().reclaimed_extents == before; ++i)
      world.Put(next++, kPart);
    ASSERT_GT(world.log->counters().reclaimed_extents, before);
    const auto left = world.log->table().all().find(holder);
    EXPECT_TRUE(left == world.log->table().all().end() || left->second.state != ExtentState::kSealed);
    ASSERT_EQ(world.log->UseOf(oldest), oldest_use) << "the older one is still there";
  }
  // Where the record of the first drop stands.
  uint64_t DropRecordAt() const {
    std::vector<std::byte> page(kPageBytes);
    for (uint32_t at = kPageBytes; at < kExtentBytes; at += kPageBytes) {
      MemoryFiles::Get(world.files->files.at(holder), at, page.data(), page.size());
      const absl::StatusOr<RecordHeader> header = DecodeRecordHeader(page.data());
      if (header.ok() && header->kind == RecordKind::kDrop) return at;
    }
    CISTERN_CHECK(false);
    return 0;
  }
  // Parts of as many coordinates as can be known, in two extents that are full of them; the last of each have
  // a block each. The last one's is returned.
  static constexpr uint64_t kFull = kEntriesPerExtentMax / kPartsPerRecordMax;
  static constexpr uint64_t kBlocksAnExtent = kFull + kEntriesPerExtentMax % kPartsPerRecordMax;
  static_assert(2 * kEntriesPerExtentMax == kCoordsSeenMax);
  uint64_t StoreCoords() {
    uint32_t coord = 0;
    for (uint64_t block = 0; block < 2 * kBlocksAnExtent; ++block) {
      const bool full = block % kBlocksAnExtent < kFull;
      LogWorld::Made made = world.Make(block, 64, full ? kPartsPerRecordMax : 1);
      for (RecordHeader::Part& part : made.header.parts) part.coord = PartCoord::Unpack(coord++);
      while (world.log->Append(made.header, made.data) != DiskLog::Appended::kOk) world.Turn();
    }
    world.Settle();
    return 2 * kBlocksAnExtent - 1;
  }
  // Another log.
  void Renew() {
    world.Close();
    world.files->files.clear();
    world.values.clear();
    world.Open();
    next = 0;
  }

  LogWorld world{kSeed, 4};
  uint64_t next = 0;
  uint32_t oldest = 0, holder = 0;
  ExtentUse oldest_use, holder_use;
};

// The list of what an extent holds is damaged: its drops are found by themselves, and go on.
TEST_F(DiskLogDrops, F04_StayDroppedWhereTheFooterOfTheirExtentIsDamaged) {
  MakeHolder();
  Damage(holder, kExtentBytes - 8);
  UntilHolderHasLeft();
  EXPECT_EQ(world.log->counters().corrupt_footers, 1u);
  EXPECT_EQ(world.log->counters().lost_drops, 0u);
  world.Reopen();
  EXPECT_EQ(world.Get(kGone, kPart), Found::kMiss);
  EXPECT_EQ(world.Get(kStays, kPart), Found::kRight);
}

// The record itself is damaged, in its header or in what it names, with and without the list, or the disk
// does not read it: that is told, and the next start takes nothing that may have been dropped.
TEST_F(DiskLogDrops, F04_StayDroppedWhereTheirRecordIsDamaged) {
  for (const bool footer : {false, true}) {
    for (const uint32_t at : {100u, kPageBytes + 3}) {
      SCOPED_TRACE(testing::Message() << footer << " " << at);
      Renew();
      MakeHolder();
      Damage(holder, DropRecordAt() + at);
      if (footer) Damage(holder, kExtentBytes - 8);
      world.warnings.clear();
      UntilHolderHasLeft();
      EXPECT_EQ(world.log->counters().lost_drops, 1u);
      EXPECT_THAT(world.warnings, testing::Contains(testing::HasSubstr("a record of drops cannot be kept")));
      EXPECT_EQ(world.Get(kStays, kPart), Found::kRight) << "memory knows what was dropped";
      world.Reopen();
      EXPECT_EQ(world.Get(kGone, kPart), Found::kMiss);
      EXPECT_EQ(world.Get(kStays, kPart), Found::kMiss) << "nobody knows that of it";
      EXPECT_EQ(world.Get(next - 1, kPart), Found::kRight) << "what is newer stays";
      world.Reopen();
      EXPECT_EQ(world.Get(kGone, kPart), Found::kMiss);
      EXPECT_EQ(world.Get(next - 1, kPart), Found::kRight);
    }
  }
}

// The same, seen by a start: by the footer, and record by record.
TEST_F(DiskLogDrops, F04_AStartTakesNothingThatALostRecordMayName) {
  for (const bool footer : {false, true}) {
    SCOPED_TRACE(footer);
    Renew();
    MakeHolder();
    Damage(holder, DropRecordAt() + kPageBytes + 3);
    if (footer) Damage(holder, kExtentBytes - 8);
    world.warnings.clear();
    world.Reopen();
    EXPECT_EQ(world.log->counters().lost_drops, 1u);
    EXPECT_THAT(world.warnings, testing::Contains(testing::HasSubstr("a record of drops is lost")));
    EXPECT_EQ(world.Get(kGone, kPart), Found::kMiss);
    EXPECT_EQ(world.Get(kStays, kPart), Found::kMiss);
    EXPECT_EQ(world.Get(next - 1, kPart), Found::kRight);
    world.Reopen();
    EXPECT_EQ(world.Get(kGone, kPart), Found::kMiss);
    EXPECT_EQ(world.Get(next - 1, kPart), Found::kRight);
  }
}

// F10: a write that fails takes a record of drops along; it is written again.
TEST_F(DiskLogDrops, F10_AFailedWriteBringsNothingBack) {
  for (const bool all : {false, true}) {
    SCOPED_TRACE(all);
    Renew();
    for (; next < 4; ++next) world.Put(next, kPart);
    world.Settle();
    world.disk->faults.nth_write = 1;
    world.disk->faults.nth_error = EIO;
    const BlockHash gone = world.Block(kGone).hash;
    all ? world.log->DropAll() : world.Drop({&gone, 1});
    world.Turns(20);
    ASSERT_TRUE(world.log->degraded());
    for (int i = 0; i < 100'000 && world.log->degraded(); ++i) world.Turn();
    world.Turns(200);
    world.Reopen();
    EXPECT_EQ(world.Get(kGone, kPart), Found::kMiss);
    EXPECT_EQ(world.Get(kStays, kPart), all ? Found::kMiss : Found::kRight);
  }
}

// F10: and so does one that was on its way to the log's end. Where that was the last room there was, it
// cannot be written again, and what is older goes with the next start.
TEST_F(DiskLogDrops, F10_AFailedWriteOfACarriedRecordBringsNothingBack) {
  int exact = 0;
  for (uint64_t nth = 1; nth <= 4; ++nth) {
    SCOPED_TRACE(nth);
    Renew();
    MakeHolder();
    for (int i = 0; i < 2000 && world.log->table().all().at(holder).state == ExtentState::kSealed; ++i)
      world.Put(next++, kPart);
    ASSERT_EQ(world.log->table().all().at(holder).state, ExtentState::kLeaving);
    world.disk->faults.nth_write = nth;
    world.disk->faults.nth_error = EIO;
    world.Turns(200);
    world.disk->faults.nth_write = 0;  // Where there were fewer.
    for (int i = 0; i < 100'000 && world.log->degraded(); ++i) world.Turn();
    UntilHolderHasLeft();
    const bool lost = world.log->counters().lost_drops > 0;
    exact += !lost;
    EXPECT_EQ(world.Get(kStays, kPart), Found::kRight);
    world.Reopen();
    EXPECT_EQ(world.Get(kGone, kPart), Found::kMiss);
    EXPECT_EQ(world.Get(kStays, kPart), lost ? Found::kMiss : Found::kRight);
  }
  EXPECT_GT(exact, 0);
}

// A record of drops that is written again speaks of what it spoke of before: what was stored since stays.
TEST_F(DiskLogDrops, AreNoNewerForHavingBeenWrittenAgain) {
  MakeHolder();
  world.Put(kGone, kPart);
  world.Settle();
  UntilHolderHasLeft();
  ASSERT_EQ(world.Get(kGone, kPart), Found::kRight);
  world.Reopen();
  EXPECT_EQ(world.Get(kGone, kPart), Found::kRight);
}

// Between the first part of a block to go and the end of its drop others store it anew: found until the next
// start, and then a miss. What was dropped is not there again.
TEST_F(DiskLogDrops, WhatIsStoredBeforeTheEndOfItsDropIsAMissAtMost) {
  world.Put(kGone, kPart);
  world.Put(kStays, kPart);
  world.Settle();
  const BlockHash gone = world.Block(kGone).hash;
  EXPECT_TRUE(world.log->DropPart(gone, {}));
  LogWorld::Made again = world.Make(100, kPart);  // Other bytes, so that it is known which is found.
  again.header.block = world.Block(kGone);
  EXPECT_EQ(world.log->Append(again.header, again.data), DiskLog::Appended::kOk);
  const DiskEntry newer = *world.log->Find(gone, {});
  world.log->EndDrop(gone);
  world.Settle();
  ASSERT_NE(world.log->Find(gone, {}), nullptr);
  EXPECT_TRUE(world.log->Find(gone, {})->IsAt(newer));
  world.Turns(20);
  world.Reopen();
  EXPECT_EQ(world.log->Find(gone, {}), nullptr);
  EXPECT_EQ(world.Get(kStays, kPart), Found::kRight);
}

// Parts of more coordinates than can be known are refused, not taken and never found.
TEST_F(DiskLogDrops, WhatNoDropWouldFindIsRefused) {
  const uint64_t last = StoreCoords();
  LogWorld::Made one = world.Make(last + 1, 64);
  one.header.parts[0].coord = PartCoord::Unpack(1u << 20);
  EXPECT_EQ(world.log->Append(one.header, one.data), DiskLog::Appended::kNoName);
  EXPECT_EQ(world.log->Begin(one.header, one.data), DiskLog::Appended::kNoName);
  one.header.parts[0].coord = PartCoord::Unpack(7);
  EXPECT_EQ(world.log->Append(one.header, one.data), DiskLog::Appended::kOk);
  world.Settle();
  EXPECT_EQ(world.log->counters().durable_parts, kCoordsSeenMax + 1);
}

// A start that meets more of them than can be known leaves some out, and says so; they are dropped all the
// same.
TEST_F(DiskLogDrops, WhatAStartLeavesOutIsDroppedToo) {
  const uint64_t last = StoreCoords();
  world.Open();
  world.disk->faults.reads_fail = true;  // Those are not seen this time.
  world.Settle();
  world.disk->faults.reads_fail = false;
  LogWorld::Made other = world.Make(last + 1, 64);
  other.header.parts[0].coord = PartCoord::Unpack(1u << 20);
  while (world.log->Append(other.header, other.data) != DiskLog::Appended::kOk) world.Turn();
  world.Reopen();
  EXPECT_EQ(world.log->counters().unnamed_parts, 1u);
  EXPECT_THAT(world.warnings, testing::Contains(testing::HasSubstr("kCoordsSeenMax")));
  // The newest were met first.
  const BlockHash gone[] = {world.Block(kBlocksAnExtent - 1).hash, other.header.block.hash};
  EXPECT_EQ(world.Drop(gone), 1u);
  world.Turns(20);
  world.Reopen();
  EXPECT_EQ(world.log->counters().unnamed_parts, 0u);
  EXPECT_EQ(world.log->Find(gone[0], PartCoord::Unpack(kEntriesPerExtentMax - 1)), nullptr);
  const BlockHash before = world.Block(kBlocksAnExtent - 2).hash;
  EXPECT_NE(world.log->Find(before, PartCoord::Unpack(kEntriesPerExtentMax - 2)), nullptr);
}

// What waits for the disk has a bound; beyond it, the next start takes nothing that is older.
TEST_F(DiskLogDrops, SoManyWaitForTheDiskAndNoMore) {
  constexpr uint32_t kSmall = 512;
  for (; next < 4; ++next) world.Put(next, kSmall);
  world.Settle();
  world.Open();  // What is dropped before all is scanned is written down, whether it was there or not.
  world.log->EndDrop(world.Block(kGone).hash);
  world.warnings.clear();
  BlockHash hash = world.Block(1000).hash;
  for (uint64_t i = 0; i < kDropsWaitingMax; ++i) {
    StoreLe<uint64_t>(hash.bytes.data(), i);
    world.log->EndDrop(hash);
    ASSERT_LE(world.log->drops_waiting(), kDropsWaitingMax);
  }
  EXPECT_EQ(world.log->counters().lost_drops, 1u);
  EXPECT_THAT(world.warnings, testing::Contains(testing::HasSubstr("kDropsWaitingMax")));
  world.Settle();
  EXPECT_EQ(world.Get(kGone, kSmall), Found::kMiss);
  EXPECT_EQ(world.Get(kStays, kSmall), Found::kRight);
  world.Put(next, kSmall);
  world.Reopen();
  EXPECT_EQ(world.Get(kGone, kSmall), Found::kMiss);
  EXPECT_EQ(world.Get(kStays, kSmall), Found::kMiss);
  EXPECT_EQ(world.Get(next, kSmall), Found::kRight);
}

}  // namespace
}  // namespace cistern
