#include "transport/shared_ring.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "core/random.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

constexpr size_t kLane = 8192;
// Where the words of a lane lie, for those who write what they should not.
constexpr size_t kLaneStride = 256, kWritten = 0, kRead = 64, kAsleep = 128, kWaits = 192;

UniqueFd Duplicate(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }
std::byte ByteAt(uint64_t at) { return static_cast<std::byte>((at * 131 + (at >> 8)) & 0xff); }

struct Ends {
  explicit Ends(size_t lane_bytes = kLane) {
    node = *SharedRing::Create(lane_bytes);
    client = *SharedRing::Join(Duplicate(node->fd()), node->bytes());
  }
  void Poke(size_t lane, size_t word, uint64_t value) const {
    const size_t bytes = word >= kAsleep ? sizeof(uint32_t) : sizeof(uint64_t);
    const auto at = static_cast<off_t>(lane * kLaneStride + word);
    ASSERT_EQ(pwrite(node->fd(), &value, bytes, at), static_cast<ssize_t>(bytes));
  }
  std::unique_ptr<SharedRing> node, client;
};

int64_t Put(SharedRing& ring, std::vector<std::byte> bytes) {
  const iovec piece{bytes.data(), bytes.size()};
  return ring.Write(absl::MakeConstSpan(&piece, 1));
}

TEST(SharedRing, CarriesBytesInOrderPastItsEndBothWays) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  Ends ends;
  Random random(kSeed);
  for (const bool to_node : {true, false}) {
    SharedRing& from = to_node ? *ends.client : *ends.node;
    SharedRing& to = to_node ? *ends.node : *ends.client;
    uint64_t written = 0, read = 0;
    while (read < 50 * kLane) {
      std::vector<std::byte> bytes(random.Below(3000));
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteAt(written + i);
      const size_t cut = bytes.empty() ? 0 : random.Below(bytes.size());
      const iovec pieces[3] = {{bytes.data(), cut}, {nullptr, 0}, {bytes.data() + cut, bytes.size() - cut}};
      const int64_t took = from.Write(pieces);
      if (took >= 0) written += static_cast<uint64_t>(took);
      if (took < static_cast<int64_t>(bytes.size())) {
        ASSERT_EQ(written - read, kLane);
      }
      std::vector<std::byte> out(random.Below(4000) + 1);
      ASSERT_EQ(to.Readable(), written != read);
      const int64_t came = to.Read(out.data(), out.size());
      if (written == read) {
        ASSERT_EQ(came, -1);
        ASSERT_EQ(errno, EAGAIN);
        continue;
      }
      ASSERT_EQ(came, static_cast<int64_t>(std::min<uint64_t>(out.size(), written - read)));
      for (int64_t i = 0; i < came; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], ByteAt(read++));
    }
  }
}

TEST(SharedRing, SaysWhenItIsFullAndWhenHalfOfItIsFreeAgain) {
  Ends ends;
  ASSERT_EQ(Put(*ends.node, std::vector<std::byte>(kLane + 1)), static_cast<int64_t>(kLane));
  EXPECT_EQ(Put(*ends.node, std::vector<std::byte>(1)), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(ends.node->HasRoom());
  EXPECT_FALSE(ends.client->TakeWriterWake()) << "nobody waits";
  ends.node->AwaitRoom();
  std::vector<std::byte> out(kLane);
  ASSERT_EQ(ends.client->Read(out.data(), kLane / 2 - 1), static_cast<int64_t>(kLane / 2 - 1));
  EXPECT_FALSE(ends.client->TakeWriterWake()) << "too little room";
  EXPECT_FALSE(ends.node->HasRoom());
  ASSERT_EQ(ends.client->Read(out.data(), 1), 1);
  EXPECT_TRUE(ends.client->TakeWriterWake());
  EXPECT_FALSE(ends.client->TakeWriterWake()) << "once";
  EXPECT_TRUE(ends.node->HasRoom());
  EXPECT_TRUE(ends.node->SeesWakeTaken());
  EXPECT_FALSE(ends.node->SeesWakeTaken());
}

TEST(SharedRing, OwesASleeperOneWake) {
  Ends ends;
  Put(*ends.client, std::vector<std::byte>(1));
  EXPECT_TRUE(ends.client->TakeReaderWake()) << "a reader that has said nothing counts as asleep";
  EXPECT_FALSE(ends.client->TakeReaderWake());
  EXPECT_TRUE(ends.node->SeesWakeTaken());
  ends.node->SetAsleep(true);
  EXPECT_TRUE(ends.node->Readable()) << "so it does not sleep";
  ends.node->SetAsleep(false);
  Put(*ends.client, std::vector<std::byte>(1));
  EXPECT_FALSE(ends.client->TakeReaderWake());
  EXPECT_FALSE(ends.node->SeesWakeTaken());
}

TEST(SharedRing, S06_PositionsThatCannotBeAreRefused) {
  std::byte out[16];
  for (const uint64_t bad : {uint64_t{kLane + 1}, UINT64_MAX, uint64_t{1} << 32}) {
    Ends ends;
    ends.Poke(0, kWritten, bad);
    EXPECT_TRUE(ends.node->Readable()) << "or nobody would look";
    EXPECT_EQ(ends.node->Read(out, sizeof(out)), -1);
    EXPECT_EQ(errno, EBADMSG);
    ends.Poke(1, kRead, bad);
    EXPECT_TRUE(ends.node->HasRoom());
    ASSERT_EQ(Put(*ends.node, std::vector<std::byte>(kLane)), static_cast<int64_t>(kLane))
        << "room that was known needs no look";
    EXPECT_EQ(Put(*ends.node, std::vector<std::byte>(1)), -1);
    EXPECT_EQ(errno, EBADMSG);
  }
}

TEST(SharedRing, APeerThatRewritesWhatStandsInTheRingMovesNoPositionHere) {
  Ends ends;
  Put(*ends.node, std::vector<std::byte>(100));
  ends.Poke(1, kWritten, 7);  // Ours; only shown to the peer.
  ASSERT_EQ(Put(*ends.node, std::vector<std::byte>(50)), 50);
  std::byte out[kLane];
  EXPECT_EQ(ends.client->Read(out, sizeof(out)), 150);
  ends.Poke(1, kWaits, 0xffffffff);
  ends.Poke(0, kAsleep, 0xffffffff);
  EXPECT_TRUE(ends.client->TakeWriterWake());
  EXPECT_FALSE(ends.client->TakeWriterWake());
  EXPECT_TRUE(ends.client->TakeReaderWake());
  EXPECT_FALSE(ends.client->TakeReaderWake());
}

TEST(SharedRing, JoinRefusesWhatIsNoRing) {
  const auto join = [](size_t bytes, unsigned seals, uint64_t announced) {
    UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return SharedRing::Join(std::move(fd), announced).status().code();
  };
  constexpr size_t kBytes = 4096 + 2 * kLane;
  constexpr unsigned kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
  EXPECT_EQ(join(kBytes, kSealed, kBytes), absl::StatusCode::kOk);
  EXPECT_EQ(join(kBytes, 0, kBytes), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(join(kBytes, F_SEAL_GROW, kBytes), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(join(kBytes, kSealed, kBytes + 8192), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(join(kBytes, kSealed | F_SEAL_FUTURE_WRITE, kBytes), absl::StatusCode::kOk);
  for (const size_t bytes : {size_t{0}, size_t{4096}, size_t{8192}, kBytes + 4096, size_t{1} << 40}) {
    EXPECT_EQ(join(bytes, kSealed, bytes), absl::StatusCode::kInvalidArgument) << bytes;
  }
  EXPECT_EQ(SharedRing::Join(UniqueFd(), kBytes).status().code(), absl::StatusCode::kInvalidArgument);
}

// Both sides sleep whenever they find nothing to do, so a wake-up that is lost is the end of the test.
TEST(SharedRing, TwoThreadsThatSleepLoseNoWakeUp) {
  constexpr uint64_t kSeed = 11;
  constexpr uint64_t kBytes = 24u << 20;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  Ends ends;
  const UniqueFd reader_bell(eventfd(0, EFD_CLOEXEC)), writer_bell(eventfd(0, EFD_CLOEXEC));
  const auto ring_bell = [](const UniqueFd& bell) {
    const uint64_t one = 1;
    (void)!write(bell.get(), &one, sizeof(one));
  };
  const auto await_bell = [](const UniqueFd& bell) {
    pollfd ready{bell.get(), POLLIN, 0};
    if (poll(&ready, 1, 30'000) != 1) return false;
    uint64_t count = 0;
    return read(bell.get(), &count, sizeof(count)) == sizeof(count);
  };
  bool writer_ok = true;
  std::thread writer([&] {
    Random random(kSeed);
    uint64_t written = 0;
    std::vector<std::byte> bytes;
    while (written < kBytes && writer_ok) {
      bytes.resize(1 + random.Below(random.Chance(0.1) ? 2 * kLane : 200));
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteAt(written + i);
      const int64_t took = Put(*ends.client, bytes);
      if (took > 0) written += static_cast<uint64_t>(took);
      if (ends.client->TakeReaderWake()) ring_bell(reader_bell);
      if (took > 0) continue;
      ends.client->AwaitRoom();
      if (!ends.client->HasRoom()) writer_ok = await_bell(writer_bell);
    }
  });
  uint64_t read = 0;
  uint64_t wrong = 0;
  bool reader_ok = true;
  Random random(kSeed + 1);
  std::vector<std::byte> out(kLane);
  ends.node->SetAsleep(false);
  while (read < kBytes && reader_ok) {
    const int64_t came = ends.node->Read(out.data(), 1 + random.Below(out.size()));
    for (int64_t i = 0; i < came; ++i) wrong += out[static_cast<size_t>(i)] != ByteAt(read++);
    if (ends.node->TakeWriterWake()) ring_bell(writer_bell);
    if (came > 0) continue;
    ends.node->SetAsleep(true);
    if (!ends.node->Readable()) reader_ok = await_bell(reader_bell);
    ends.node->SetAsleep(false);
  }
  writer.join();
  EXPECT_TRUE(reader_ok && writer_ok) << "asleep for ever at byte " << read;
  EXPECT_GE(read, kBytes);
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace cistern
