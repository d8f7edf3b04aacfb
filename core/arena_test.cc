#include "core/arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace cistern {
namespace {

using ::testing::HasSubstr;

constexpr size_t kHuge = 2u << 20;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

int PlainMemfd(size_t bytes, int seals) {
  const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(MemoryRegion, SealsSizeAndFutureWritersOfAnArena) {
  auto region = MemoryRegion::Create("arena", 10'000, /*seal_future_write=*/true);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(region->bytes(), 12'288u);
  EXPECT_EQ(::fcntl(region->fd(), F_GET_SEALS), kSizeSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  EXPECT_NE(::ftruncate(region->fd(), 4096), 0);
  EXPECT_NE(::ftruncate(region->fd(), 1 << 20), 0);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd(), 0), MAP_FAILED);
  EXPECT_LT(::pwrite(region->fd(), "x", 1, 0), 0);
  EXPECT_NE(::fallocate(region->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  // What a reader maps it can never make writable.
  void* map = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, region->fd(), 0);
  ASSERT_NE(map, MAP_FAILED);
  EXPECT_NE(::mprotect(map, 4096, PROT_READ | PROT_WRITE), 0);
  ::munmap(map, 4096);
  std::memset(region->data(), 7, region->bytes());  // The owner's own mapping goes on writing.
}

TEST(MemoryRegion, LetsBothSidesOfAWindowWrite) {
  auto region = MemoryRegion::Create("window", 4096, /*seal_future_write=*/false);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(::fcntl(region->fd(), F_GET_SEALS), kSizeSeals | F_SEAL_SEAL);
}

TEST(MemoryRegion, ShowsAPeerWhatTheOwnerWrites) {
  auto owner = MemoryRegion::Create("arena", 1 << 20, true);
  ASSERT_TRUE(owner.ok());
  auto peer = MemoryRegion::MapPeer(::dup(owner->fd()), 1 << 20);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->fd(), -1);
  owner->data()[77'777] = std::byte{42};
  EXPECT_EQ(peer->data()[77'777], std::byte{42});
  EXPECT_TRUE(peer->Populate(0, peer->bytes()).ok());
}

TEST(MemoryRegion, KeepsItsBytesForAPeerWhenTheOwnerIsGone) {
  auto owner = MemoryRegion::Create("arena", 4096, true);
  ASSERT_TRUE(owner.ok());
  owner->data()[1] = std::byte{9};
  auto peer = MemoryRegion::MapPeer(::dup(owner->fd()), 4096);
  ASSERT_TRUE(peer.ok());
  { const MemoryRegion gone = *std::move(owner); }
  EXPECT_EQ(peer->data()[1], std::byte{9});
}

TEST(MemoryRegion, RefusesAPeersUnsealedMemory) {
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW}) {
    const absl::Status status = MemoryRegion::MapPeer(PlainMemfd(4096, seals), 4096).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("not sealed"));
  }
  EXPECT_TRUE(MemoryRegion::MapPeer(PlainMemfd(4096, kSizeSeals), 4096).ok());
}

TEST(MemoryRegion, RefusesAPeersMemoryOfAnotherSize) {
  for (const size_t bytes : {size_t{0}, size_t{4095}, size_t{8192}, SIZE_MAX}) {
    const absl::Status status = MemoryRegion::MapPeer(PlainMemfd(4096, kSizeSeals), bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
}

TEST(MemoryRegion, RefusesADescriptorThatIsNoMemfdAndClosesIt) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(MemoryRegion::MapPeer(ends[0], 4096).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_LT(::fcntl(ends[0], F_GETFD), 0);
  ::close(ends[1]);
}

TEST(MemoryRegion, RefusesMoreThanTheMachineHasWithNumbers) {
  const size_t bytes = size_t{1} << 44;  // 16 TiB.
  const absl::Status status = MemoryRegion::Create("arena", bytes, true).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("16777216 MiB"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("available"));
}

TEST(MemoryRegion, RefusesNoBytesAndAbsurdOnes) {
  EXPECT_EQ(MemoryRegion::Create("arena", 0, true).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MemoryRegion::Create("arena", SIZE_MAX, true).status().code(),
            absl::StatusCode::kInvalidArgument);
}

bool KernelGivesHugeSharedPages() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string modes;
  std::getline(in, modes);
  return modes.find("[never]") == std::string::npos && modes.find("[deny]") == std::string::npos &&
         !modes.empty();
}

TEST(MemoryRegion, BeginsWhereHugePagesBegin) {
  for (const size_t bytes : {kHuge, kHuge + 4096, 3 * kHuge}) {
    auto owner = MemoryRegion::Create("arena", bytes, true);
    ASSERT_TRUE(owner.ok()) << owner.status();
    auto peer = MemoryRegion::MapPeer(::dup(owner->fd()), bytes);
    ASSERT_TRUE(peer.ok()) << peer.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(owner->data()) % kHuge, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(peer->data()) % kHuge, 0u);
    EXPECT_EQ(owner->HugePageBytes(), 0u);
  }
}

TEST(MemoryRegion, GivesBackTheAddressesItReserved) {
  const auto mappings = [] {
    std::ifstream in("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  };
  { auto warm = MemoryRegion::Create("arena", kHuge, true); }
  const auto before = mappings();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(MemoryRegion::Create("arena", kHuge + i * 4096, true).ok());
  EXPECT_LE(mappings(), before + 2);
}

TEST(MemoryRegion, HasHugePagesWhereTheKernelGivesThem) {
  if (!KernelGivesHugeSharedPages()) GTEST_SKIP() << "transparent_hugepage/shmem_enabled gives none";
  auto owner = MemoryRegion::Create("arena", 4 * kHuge + 4096, true);
  ASSERT_TRUE(owner.ok());
  owner->PreferHugePages(0, owner->bytes());
  ASSERT_TRUE(owner->Populate(0, owner->bytes()).ok());
  if (owner->HugePageBytes() == 0) GTEST_SKIP() << "this machine's memory has no free huge page";
  auto peer = MemoryRegion::MapPeer(::dup(owner->fd()), owner->bytes());
  ASSERT_TRUE(peer.ok());
  owner->data()[kHuge] = std::byte{5};
  EXPECT_EQ(peer->data()[kHuge], std::byte{5});
  EXPECT_GE(peer->HugePageBytes(), kHuge);  // One access maps the whole of it.
  const MemoryRegion* const both[] = {&*owner, &*peer};
  EXPECT_EQ(MemoryRegion::HugePageBytes(both), owner->HugePageBytes() + peer->HugePageBytes());
}

TEST(MemoryRegion, IgnoresAWishForHugePagesOutside) {
  auto region = MemoryRegion::Create("arena", 2 * kHuge, true);
  ASSERT_TRUE(region.ok());
  region->PreferHugePages(1, SIZE_MAX);
  region->PreferHugePages(3 * kHuge, kHuge);
  region->PreferHugePages(kHuge + 1, kHuge - 1);  // No whole one.
  ASSERT_TRUE(region->Populate(0, region->bytes()).ok());
  EXPECT_EQ(region->HugePageBytes(), 0u);
}

TEST(MemoryRegion, PopulatesPagesWithoutChangingThem) {
  auto region = MemoryRegion::Create("arena", 64 * 4096, true);
  ASSERT_TRUE(region.ok());
  region->data()[5 * 4096 + 1] = std::byte{3};
  ASSERT_TRUE(region->Populate(4096 + 7, 62 * 4096).ok());
  EXPECT_EQ(region->data()[5 * 4096 + 1], std::byte{3});
  unsigned char there[64];
  ASSERT_EQ(::mincore(region->data(), region->bytes(), there), 0);
  for (int page = 1; page < 63; ++page) EXPECT_TRUE(there[page] & 1) << page;
  EXPECT_EQ(region->Populate(0, region->bytes() + 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(region->Populate(SIZE_MAX, 2).code(), absl::StatusCode::kInvalidArgument);
}

TEST(AvailableMemory, IsSomeOfWhatThereIs) {
  EXPECT_GT(AvailableMemoryBytes(), 1u << 20);
  EXPECT_LT(AvailableMemoryBytes(), uint64_t{1} << 50);
}

}  // namespace
}  // namespace cistern
