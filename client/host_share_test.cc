#include "client/host_share.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/crc32c.h"

namespace cistern {
namespace {

using Claimed = HostShare::Claimed;
using State = HostShare::State;

constexpr uint32_t kPart = 4096;
constexpr Nanos kNow = 77 * kSecond;

class HostShareTest : public ::testing::Test {
 protected:
  HostShareTest() {
    std::string name = ::testing::TempDir() + "/cistern-share-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~HostShareTest() override { rmdir(folder_.c_str()); }  // Fails, and tells, when anything is left.

  static BlockKey Key(uint8_t seed) {
    BlockKey key;
    key.hash.bytes.fill(seed);
    key.fingerprint = seed;
    return key;
  }
  static std::vector<std::byte> Bytes(uint8_t seed) { return std::vector<std::byte>(kPart, std::byte{seed}); }
  static void Publish(HostShare& share, const HostShare::Place& place, uint8_t seed, Nanos now = kNow) {
    std::vector<std::byte> bytes = Bytes(seed);
    SlotTrailer trailer{};
    trailer.generation = seed;
    trailer.crc = Crc32c(bytes.data(), bytes.size());
    const Segment half[] = {{bytes.data(), 1000}, {bytes.data() + 1000, bytes.size() - 1000}};
    share.Publish(place, trailer, half, now);
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    DIR* folder = opendir(folder_.c_str());
    while (const dirent* entry = readdir(folder)) {
      if (entry->d_name[0] != '.') names.push_back(entry->d_name);
    }
    closedir(folder);
    return names;
  }
  std::string folder_;
};

TEST_F(HostShareTest, OneBringsItAndOthersTakeIt) {
  HostShare one("engine", 1 << 20, folder_), two("engine", 1 << 20, folder_), other("else", 1 << 20, folder_);
  HostShare::Place mine, theirs;
  ASSERT_EQ(one.Claim(Key(1), {}, kPart, kNow, mine), Claimed::kMine);
  ASSERT_EQ(two.Claim(Key(1), {}, kPart, kNow, theirs), Claimed::kOthers);
  EXPECT_EQ(two.Look(theirs), State::kComing);
  Publish(one, mine, 1);
  ASSERT_EQ(two.Look(theirs), State::kThere);
  std::vector<std::byte> got(kPart);
  const Segment target[] = {{got.data(), 96}, {got.data() + 96, got.size() - 96}};
  const PullResult taken = two.Take(theirs, target);
  EXPECT_EQ(taken.result, PartResult::kOk);
  EXPECT_EQ(got, Bytes(1));
  EXPECT_EQ(taken.trailer.generation, 1u);
  EXPECT_EQ(taken.crc, taken.trailer.crc);
  // Another name, another size, another slice: another part.
  EXPECT_EQ(other.Claim(Key(1), {}, kPart, kNow, mine), Claimed::kMine);
  EXPECT_EQ(two.Claim(Key(1), {}, kPart / 2, kNow, mine), Claimed::kMine);
  EXPECT_EQ(two.Claim(Key(1), {0, 1, 0}, kPart, kNow, mine), Claimed::kMine);
}

TEST_F(HostShareTest, WhatFailedIsGoneAtOnce) {
  HostShare one("engine", 1 << 20, folder_), two("engine", 1 << 20, folder_);
  HostShare::Place mine, theirs, again;
  ASSERT_EQ(one.Claim(Key(1), {}, kPart, kNow, mine), Claimed::kMine);
  ASSERT_EQ(two.Claim(Key(1), {}, kPart, kNow, theirs), Claimed::kOthers);
  one.Drop(mine);
  EXPECT_EQ(two.Look(theirs), State::kGone);
  EXPECT_EQ(two.Claim(Key(1), {}, kPart, kNow, again), Claimed::kMine);
}

TEST_F(HostShareTest, ADeadOnesClaimIsFreeAfterItsTimeAndItsLateBytesCountForNothing) {
  constexpr size_t kOneSlot = kPart + 128;
  HostShare one("engine", kOneSlot, folder_), two("engine", kOneSlot, folder_);
  HostShare::Place dead, mine, theirs;
  ASSERT_EQ(one.Claim(Key(1), {}, kPart, kNow, dead), Claimed::kMine);
  EXPECT_EQ(two.Claim(Key(1), {}, kPart, kNow + kShareClaimMax, theirs), Claimed::kOthers);
  const Nanos later = kNow + kShareClaimMax + 2 * kMillisecond;
  ASSERT_EQ(two.Claim(Key(1), {}, kPart, later, mine), Claimed::kMine);
  Publish(one, dead, 9, later);  // It was only slow.
  one.Drop(dead);
  EXPECT_EQ(two.Look(mine), State::kComing);
  Publish(two, mine, 1, later);
  ASSERT_EQ(two.Look(mine), State::kThere);
  std::vector<std::byte> got(kPart);
  const Segment target[] = {{got.data(), got.size()}};
  EXPECT_EQ(two.Take(mine, target).trailer.generation, 1u);
  EXPECT_EQ(got, Bytes(1));
}

TEST_F(HostShareTest, IsFullWhenAllIsWantedStillAndASlotThatIsReusedSaysSo) {
  HostShare one("engine", 5 * kPart, folder_);
  std::vector<HostShare::Place> places(4);
  for (uint8_t i = 0; i < 4; ++i)
    ASSERT_EQ(one.Claim(Key(i), {}, kPart, kNow, places[i]), Claimed::kMine) << int{i};
  HostShare::Place place;
  EXPECT_EQ(one.Claim(Key(9), {}, kPart, kNow, place), Claimed::kFull);
  Publish(one, places[2], 2);
  ASSERT_EQ(one.Look(places[2]), State::kThere);
  EXPECT_EQ(one.Claim(Key(9), {}, kPart, kNow + kShareKeepMin, place), Claimed::kFull);
  ASSERT_EQ(one.Claim(Key(9), {}, kPart, kNow + kShareKeepMin + kMillisecond, place), Claimed::kMine);
  EXPECT_EQ(place.slot, places[2].slot);
  std::vector<std::byte> got(kPart);
  const Segment target[] = {{got.data(), got.size()}};
  EXPECT_EQ(one.Take(places[2], target).result, PartResult::kStale);
  EXPECT_EQ(one.Look(places[2]), State::kGone);
}

TEST_F(HostShareTest, WhatCannotBeHadIsSaidAndCostsTheSharingAlone) {
  HostShare::Place place;
  HostShare small("engine", kPart / 2, folder_);
  EXPECT_EQ(small.Claim(Key(1), {}, kPart, kNow, place), Claimed::kFull);
  EXPECT_EQ(small.failures(), 1u);
  HostShare nowhere("engine", 1 << 20, folder_ + "/nowhere");
  EXPECT_EQ(nowhere.Claim(Key(1), {}, kPart, kNow, place), Claimed::kFull);
  EXPECT_EQ(nowhere.Claim(Key(2), {}, kPart, kNow, place), Claimed::kFull);
  EXPECT_EQ(nowhere.failures(), 1u);  // Not tried again.
  EXPECT_THAT(nowhere.why(), ::testing::HasSubstr("No such file"));
  for (uint32_t i = 0; i < kShareSizesMax; ++i)
    EXPECT_EQ(HostShare("x", 1 << 20, folder_).Claim(Key(1), {}, kPart + i, kNow, place), Claimed::kMine);
}

TEST_F(HostShareTest, SegmentsGoWithTheirLastUserAlsoOneThatWasKilled) {
  {
    HostShare one("engine", 1 << 20, folder_);
    HostShare::Place place;
    ASSERT_EQ(one.Claim(Key(1), {}, kPart, kNow, place), Claimed::kMine);
    {
      HostShare two("engine", 1 << 20, folder_);
      ASSERT_EQ(two.Claim(Key(1), {}, kPart, kNow, place), Claimed::kOthers);
    }
    EXPECT_EQ(Files().size(), 1u);  // `one` has it still.
  }
  EXPECT_TRUE(Files().empty());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    HostShare one("engine", 1 << 20, folder_);
    HostShare::Place place;
    const bool claimed = one.Claim(Key(1), {}, kPart, kNow, place) == Claimed::kMine;
    if (write(ready[1], claimed ? "y" : "n", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char said = 0;
  ASSERT_EQ(read(ready[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  HostShare before("engine", 1 << 20, folder_);
  EXPECT_EQ(Files().size(), 1u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(Files().size(), 1u);
  HostShare after("another", 1 << 20, folder_);
  EXPECT_TRUE(Files().empty());
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace cistern
