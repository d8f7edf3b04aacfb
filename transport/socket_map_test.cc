// Descriptors that travel with the handshake, and what is mapped of them.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "transport/peer_regions.h"
#include "transport/socket_raw_peer.h"
#include "transport/socket_test_pair.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

size_t OpenFds() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}
UniqueFd Memfd(size_t bytes, unsigned seals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

class SocketMap : public ::testing::Test {
 protected:
  void SetUp() override {
    arena_ = std::make_unique<MemoryRegion>(*MemoryRegion::Create("arena", 1 << 20, true));
    window_ = std::make_unique<MemoryRegion>(*MemoryRegion::Create("window", 1 << 20, false));
    node_handler_.arena = arena_.get();
    pair_ = std::make_unique<SocketPair>(client_handler_, node_handler_, FreshUnixAddress());
  }
  bool Until(const std::function<bool()>& done) {
    for (int i = 0; i < 100'000; ++i) {
      if (done()) return true;
      pair_->Step();
    }
    return done();
  }
  ConnectOptions Options() {
    ConnectOptions options;
    options.hello = RawPeer::GoodHello();
    options.window = window_.get();
    return options;
  }
  static Hello MapHello(uint64_t window_bytes) {
    Hello hello = RawPeer::GoodHello();
    hello.wants_map = true;
    hello.window_bytes = window_bytes;
    return hello;
  }

  RecordingHandler client_handler_, node_handler_;
  std::unique_ptr<MemoryRegion> arena_, window_;
  std::unique_ptr<SocketPair> pair_;
};

TEST_F(SocketMap, PathsSayWhatIsUsedAndWhy) {
  const PeerId mapped = *pair_->client().Connect(pair_->address(), Options());
  ASSERT_TRUE(Until([&] { return client_handler_.up.size() == 1; }));
  const PeerPath* path = pair_->client().Path(mapped);
  EXPECT_EQ(path->kind, PathKind::kMap);
  EXPECT_EQ(path->device, "unix");
  EXPECT_EQ(path->memory, "memfd, read-only map; frames in a shared ring");
  EXPECT_EQ(path->why, "same host");
  EXPECT_THAT(pair_->client().MappedRegions(mapped), SizeIs(1));
  EXPECT_EQ(pair_->node().Path(node_handler_.up[0])->kind, PathKind::kMap);

  ConnectOptions options = Options();
  options.allow_map = false;
  const PeerId framed = *pair_->client().Connect(pair_->address(), options);
  ASSERT_TRUE(Until([&] { return client_handler_.up.size() == 2; }));
  EXPECT_EQ(pair_->client().Path(framed)->kind, PathKind::kSocket);
  EXPECT_FALSE(pair_->client().Path(framed)->one_sided);
  EXPECT_TRUE(client_handler_.last_ack.regions.empty());
}

TEST_F(SocketMap, ANodeWithoutArenasLeavesAFramedPeer) {
  node_handler_.arena = nullptr;
  const PeerId peer = *pair_->client().Connect(pair_->address(), Options());
  ASSERT_TRUE(Until([&] { return client_handler_.up.size() == 1; }));
  EXPECT_FALSE(pair_->client().Path(peer)->one_sided);
  EXPECT_THAT(pair_->client().Path(peer)->why, HasSubstr("map refused"));
  EXPECT_EQ(pair_->client().counters().at("map_refused_total"), 1u);
}

TEST_F(SocketMap, UnsealedOrMissingWindowsLeaveAFramedPeer) {
  const UniqueFd open_end = Memfd(4096, 0);
  const UniqueFd shrinks = Memfd(4096, F_SEAL_GROW);
  const UniqueFd small = Memfd(4096, F_SEAL_GROW | F_SEAL_SHRINK);
  const std::vector<std::pair<uint64_t, std::vector<int>>> cases = {
      {4096, {open_end.get()}}, {4096, {shrinks.get()}}, {8192, {small.get()}}, {4096, {}}};
  for (const auto& [bytes, fds] : cases) {
    RawPeer peer(pair_->address());
    ASSERT_TRUE(peer.Send(RawPeer::HelloFrame(MapHello(bytes)), fds));
    const size_t before = node_handler_.up.size();
    ASSERT_TRUE(Until([&] { return node_handler_.up.size() > before; }));
    const PeerPath* path = pair_->node().Path(node_handler_.up.back());
    EXPECT_FALSE(path->one_sided);
    EXPECT_THAT(path->why, HasSubstr("map refused"));
    EXPECT_EQ(node_handler_.hellos.back().window_bytes, 0u);
  }
  EXPECT_EQ(pair_->node().counters().at("map_refused_total"), 4u);
}

TEST_F(SocketMap, DescriptorsNobodyAnnouncedAreClosedWithTheirPeer) {
  const UniqueFd good = Memfd(4096, F_SEAL_GROW | F_SEAL_SHRINK);
  const size_t before = OpenFds();
  const std::vector<std::pair<Hello, size_t>> cases = {{MapHello(4096), 2},
                                                       {MapHello(0), 1},
                                                       {RawPeer::GoodHello(), 1},
                                                       {MapHello(4096), 64},
                                                       {MapHello(4096), 200}};
  for (const auto& [hello, count] : cases) {
    RawPeer peer(pair_->address());
    ASSERT_TRUE(peer.Send(RawPeer::HelloFrame(hello), std::vector<int>(count, good.get())));
    ASSERT_TRUE(Until([&] { return !peer.Drain(); })) << count;
  }
  ASSERT_TRUE(Until([&] { return pair_->node().peer_count() == 0; }));
  EXPECT_THAT(node_handler_.up, IsEmpty());
  EXPECT_EQ(pair_->node().counters().at("bad_frames_total"), cases.size());
  EXPECT_EQ(OpenFds(), before);
}

TEST_F(SocketMap, DescriptorsAfterTheHandshakeGoNowhere) {
  RawPeer peer(pair_->address());
  ASSERT_TRUE(peer.Send(RawPeer::HelloFrame(MapHello(0))));
  ASSERT_TRUE(Until([&] { return node_handler_.up.size() == 1; }));
  ASSERT_TRUE(peer.Send(RawPeer::Frame(FrameHeader{.type = FrameType::kRing}, {})));  // No ring, thanks.
  for (int i = 0; i < 100; ++i) pair_->Step();
  const size_t before = OpenFds();
  const UniqueFd extra = Memfd(4096, F_SEAL_GROW);
  ASSERT_TRUE(
      peer.Send(RawPeer::Frame(FrameHeader{.type = FrameType::kPing}, {}), {extra.get(), extra.get()}));
  ASSERT_TRUE(Until([&] { return node_handler_.frames.size() == 1; }));
  EXPECT_EQ(OpenFds(), before + 1);
}

TEST_F(SocketMap, AMapHandshakeLeaksNoDescriptorAndNoMapping) {
  const auto once = [&] {
    client_handler_.up.clear();
    const PeerId peer = *pair_->client().Connect(pair_->address(), Options());
    ASSERT_TRUE(Until([&] { return client_handler_.up.size() == 1; }));
    pair_->client().Fence(peer, absl::CancelledError("done"));
    ASSERT_TRUE(Until([&] { return pair_->node().peer_count() == 0; }));
  };
  once();
  const size_t before = OpenFds();
  for (int i = 0; i < 20; ++i) once();
  EXPECT_EQ(OpenFds(), before);
}

TEST_F(SocketMap, ReadersCannotWriteTheArena) {
  const UniqueFd fd(fcntl(arena_->fd(), F_DUPFD_CLOEXEC, 0));
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED);
  EXPECT_EQ(pwrite(fd.get(), "x", 1, 0), -1);
  EXPECT_NE(ftruncate(fd.get(), 0), 0);
}

// F36: a sparse region above 4 GiB; offsets keep all their bits.
TEST_F(SocketMap, F36_PullsAboveFourGibibytes) {
  const uint64_t bytes = (uint64_t{5} << 30);
  UniqueFd fd = Memfd(bytes, F_SEAL_GROW | F_SEAL_SHRINK);
  const uint64_t offset = (uint64_t{1} << 32) + 12'288;
  ASSERT_EQ(pwrite(fd.get(), "above", 5, static_cast<off_t>(offset)), 5);
  SlotTrailer trailer{};
  trailer.generation = 8;
  ASSERT_EQ(pwrite(fd.get(), &trailer, sizeof(trailer), static_cast<off_t>(bytes - 64)), 64);
  PeerRegions regions;
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(fd));
  ASSERT_TRUE(regions.Map({{1, bytes}}, std::move(fds)).ok());
  char to[5] = {};
  const Segment target{reinterpret_cast<std::byte*>(to), 5};
  PullRequest request{1, 1, offset, 5, bytes - 64, absl::MakeConstSpan(&target, 1)};
  const PullResult result = regions.Pull(request);
  EXPECT_EQ(result.result, PartResult::kOk);
  EXPECT_EQ(std::string(to, 5), "above");
  EXPECT_EQ(result.trailer.generation, 8u);
  request.offset = bytes - 4;
  EXPECT_EQ(regions.Pull(request).result, PartResult::kInvalid);
}

TEST_F(SocketMap, TwoRegionsOfOneIdAreRefused) {
  std::vector<UniqueFd> fds;
  fds.push_back(Memfd(4096, F_SEAL_GROW | F_SEAL_SHRINK));
  fds.push_back(Memfd(4096, F_SEAL_GROW | F_SEAL_SHRINK));
  PeerRegions regions;
  EXPECT_EQ(regions.Map({{1, 4096}, {1, 4096}}, std::move(fds)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(regions.empty());
}

TEST_F(SocketMap, WaitFdShowsWhatPollWouldFind) {
  const auto readable = [](int fd) {
    pollfd ready{fd, POLLIN, 0};
    return poll(&ready, 1, 0) == 1;
  };
  const UniqueFd mailbox(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  ASSERT_TRUE(pair_->node().AddWakeFd(mailbox.get()).ok());
  const auto idle = [&] {
    for (int i = 0; i < 100; ++i) pair_->Step();
  };
  idle();
  EXPECT_FALSE(readable(pair_->node().WaitFd()));
  const uint64_t one = 1;
  ASSERT_EQ(write(mailbox.get(), &one, 8), 8);
  EXPECT_TRUE(readable(pair_->node().WaitFd()));
  uint64_t count = 0;
  ASSERT_EQ(read(mailbox.get(), &count, 8), 8);
  EXPECT_FALSE(readable(pair_->node().WaitFd()));

  // Nobody listens there: the news waits for Poll, and a sleeper hears of it.
  const PeerId nobody = *pair_->client().Connect(FreshUnixAddress(), Options());
  EXPECT_TRUE(readable(pair_->client().WaitFd()));
  EXPECT_THAT(client_handler_.down, IsEmpty());
  idle();
  ASSERT_THAT(client_handler_.down[nobody], SizeIs(1));
  EXPECT_EQ(client_handler_.down[nobody][0].code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(readable(pair_->client().WaitFd()));

  const PeerId peer = *pair_->client().Connect(pair_->address(), Options());
  ASSERT_TRUE(Until([&] { return client_handler_.up.size() == 1; }));
  idle();
  OutFrame frame;
  frame.type = FrameType::kPing;
  frame.cookie = 5;
  ASSERT_TRUE(pair_->client().Send(peer, frame).ok());
  EXPECT_THAT(client_handler_.sent, IsEmpty()) << "OnSent never comes from inside Send";
  EXPECT_TRUE(readable(pair_->client().WaitFd()));
  EXPECT_TRUE(readable(pair_->node().WaitFd()));
  idle();
  EXPECT_THAT(client_handler_.sent, SizeIs(1));
  EXPECT_FALSE(readable(pair_->client().WaitFd()));

  // One that spins is not woken, which would cost it two calls of the kernel a frame; it is before it sleeps.
  pair_->client().SetSpinning(true);
  frame.cookie = 6;
  ASSERT_TRUE(pair_->client().Send(peer, frame).ok());
  EXPECT_FALSE(readable(pair_->client().WaitFd()));
  pair_->client().SetSpinning(false);
  EXPECT_TRUE(readable(pair_->client().WaitFd()));
  idle();
  EXPECT_THAT(client_handler_.sent, SizeIs(2));
  EXPECT_FALSE(readable(pair_->client().WaitFd()));
}

}  // namespace
}  // namespace cistern
