// Frames in shared memory: who gets a ring, that no sleeper is forgotten, and what a hostile end can do with
// it.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include <atomic>
#include <functional>
#include <thread>

#include "core/random.h"
#include "transport/shared_ring.h"
#include "transport/socket_raw_peer.h"
#include "transport/socket_test_pair.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

bool IsReadable(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

class SocketRing : public ::testing::Test {
 protected:
  void SetUp() override {
    arena_ = std::make_unique<MemoryRegion>(*MemoryRegion::Create("arena", 1 << 20, true));
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
  void Settle() {
    for (int i = 0; i < 100; ++i) pair_->Step();
  }
  PeerId ConnectUp(bool allow_ring = true, uint16_t version_max = kWireVersionMax) {
    ConnectOptions options;
    options.hello = RawPeer::GoodHello();
    options.hello.version_max = version_max;
    options.allow_ring = allow_ring;
    const size_t before = client_handler_.up.size();
    const PeerId peer = *pair_->client().Connect(pair_->address(), options);
    EXPECT_TRUE(Until([&] { return client_handler_.up.size() > before; }));
    Settle();
    return peer;
  }
  static OutFrame Frame(FrameType type, uint64_t id, ByteView body = {}) {
    OutFrame frame;
    frame.type = type;
    frame.request_id = id;
    frame.body = body;
    return frame;
  }
  // A hostile client that has a ring, whose other end it holds in its hands.
  std::unique_ptr<SharedRing> RawRing(RawPeer& peer) {
    Hello hello = RawPeer::GoodHello();
    hello.wants_map = true;
    EXPECT_TRUE(peer.Send(RawPeer::HelloFrame(hello)));
    std::vector<UniqueFd> fds;
    EXPECT_TRUE(Until([&] { return !peer.DrainWithFds(fds) || fds.size() == 2; }));
    HelloAck ack;
    const auto header = DecodeFrameHeader(peer.received());
    EXPECT_TRUE(header.ok() && ack.Decode(ByteView(peer.received()).subspan(40, header->body_bytes)).ok());
    EXPECT_EQ(ack.regions.back().id, kRingRegion);
    ring_fd_.Reset(fcntl(fds.back().get(), F_DUPFD_CLOEXEC, 0));
    auto ring = SharedRing::Join(std::move(fds.back()), ack.regions.back().bytes);
    EXPECT_TRUE(ring.ok()) << ring.status();
    EXPECT_TRUE(peer.Send(RawPeer::Frame(FrameHeader{.type = FrameType::kRing, .flags = kFlagUseRing}, {})));
    Settle();
    EXPECT_EQ(pair_->node().Path(node_handler_.up.back())->memory, kRingText);
    return *std::move(ring);
  }
  bool Closed(RawPeer& peer) {
    return Until([&] { return !peer.Drain(); });
  }

  static constexpr char kRingText[] = "memfd, read-only map; frames in a shared ring";
  RecordingHandler client_handler_, node_handler_;
  std::unique_ptr<MemoryRegion> arena_;
  std::unique_ptr<SocketPair> pair_;
  UniqueFd ring_fd_;
};

TEST_F(SocketRing, PathsOfBothSidesSayWhetherAndWhyNot) {
  const PeerId with = ConnectUp();
  EXPECT_EQ(pair_->client().Path(with)->memory, kRingText);
  EXPECT_EQ(pair_->node().Path(node_handler_.up.back())->memory, kRingText);
  const PeerId without = ConnectUp(false);
  for (const PeerPath* path : {pair_->client().Path(without), pair_->node().Path(node_handler_.up.back())}) {
    EXPECT_TRUE(path->one_sided);
    EXPECT_EQ(path->memory, "memfd, read-only map; frames over the socket (no ring: the client wants none)");
  }
  EXPECT_THAT(client_handler_.last_ack.regions, SizeIs(1)) << "a ring is no memory of parts";
  EXPECT_EQ(pair_->node().counters().at("ring_refused_total"), 1u);
}

TEST_F(SocketRing, F61_AClientOfVersion1IsOfferedNoneAndServed) {
  const PeerId peer = ConnectUp(true, 1);
  EXPECT_EQ(client_handler_.last_ack.version, 1);
  EXPECT_TRUE(pair_->client().Path(peer)->one_sided);
  EXPECT_EQ(pair_->client().Path(peer)->memory, "memfd, read-only map; frames over the socket");
  ASSERT_TRUE(pair_->client().Send(peer, Frame(FrameType::kPing, 1)).ok());
  ASSERT_TRUE(Until([&] { return node_handler_.frames.size() == 1; }));
  EXPECT_EQ(node_handler_.frames[0].header.version, 1);
  EXPECT_EQ(pair_->node().counters().at("ring_refused_total"), 0u);
}

TEST_F(SocketRing, NodeThatSpeaksFirstWaitsForTheClientsWord) {
  for (const bool allow : {true, false}) {
    const size_t before = node_handler_.up.size();
    ConnectOptions options;
    options.hello = RawPeer::GoodHello();
    options.allow_ring = allow;
    ASSERT_TRUE(pair_->client().Connect(pair_->address(), options).ok());
    ASSERT_TRUE(Until([&] { return node_handler_.up.size() > before; }));
    const size_t frames = client_handler_.frames.size();
    ASSERT_TRUE(pair_->node().Send(node_handler_.up.back(), Frame(FrameType::kPong, 8)).ok());
    ASSERT_TRUE(Until([&] { return client_handler_.frames.size() == frames + 1; })) << allow;
  }
}

TEST_F(SocketRing, SpinnersGetNoBellsAndSleepersDo) {
  const PeerId peer = ConnectUp();
  SocketTransport& node = pair_->node();
  node.SetSpinning(true);
  ASSERT_TRUE(pair_->client().Send(peer, Frame(FrameType::kPing, 1)).ok());
  EXPECT_FALSE(IsReadable(node.WaitFd())) << "nobody sleeps there";
  node.SetSpinning(false);
  EXPECT_TRUE(IsReadable(node.WaitFd())) << "a frame that came before the sleep";
  Settle();
  EXPECT_THAT(node_handler_.frames, SizeIs(1));
  EXPECT_FALSE(IsReadable(node.WaitFd()));
  ASSERT_TRUE(pair_->client().Send(peer, Frame(FrameType::kPing, 2)).ok());
  EXPECT_TRUE(IsReadable(node.WaitFd()));
  ASSERT_TRUE(node.Poll()) << "found without asking epoll";
  EXPECT_THAT(node_handler_.frames, SizeIs(2));
  node.Poll();
  EXPECT_FALSE(IsReadable(node.WaitFd())) << "the bell is heard with its frame";
}

TEST_F(SocketRing, LastWordsBeforeTheEndAreHeard) {
  const PeerId peer = ConnectUp();
  pair_->node().SetSpinning(true);
  const Bytes body(60'000);
  for (uint64_t id = 1; id <= 4; ++id) {
    ASSERT_TRUE(pair_->client().Send(peer, Frame(FrameType::kLookup, id, body)).ok());
  }
  pair_->client().Fence(peer, absl::CancelledError("done"));
  while (node_handler_.down.empty()) pair_->node().Poll();
  EXPECT_THAT(node_handler_.frames, SizeIs(4));
}

TEST_F(SocketRing, RingsAreBoundedAndComeBack) {
  std::vector<PeerId> peers;
  for (size_t i = 0; i < kRingPeersMax + 2; ++i) peers.push_back(ConnectUp());
  EXPECT_EQ(pair_->client().Path(peers[kRingPeersMax - 1])->memory, kRingText);
  EXPECT_THAT(pair_->node().Path(node_handler_.up.back())->memory, HasSubstr("64 rings are in use"));
  for (const PeerId peer : peers) {
    ASSERT_TRUE(pair_->client().Send(peer, Frame(FrameType::kPing, peer)).ok());
  }
  ASSERT_TRUE(Until([&] { return node_handler_.frames.size() == peers.size(); }));
  pair_->client().Fence(peers[3], absl::CancelledError("done"));
  Settle();
  EXPECT_EQ(pair_->client().Path(ConnectUp())->memory, kRingText);
}

TEST_F(SocketRing, S06_PositionsThatCannotBeCloseThePeer) {
  for (const size_t word : {size_t{0}, size_t{256 + 64}}) {  // What it wrote; what it read of ours.
    RawPeer peer(pair_->address());
    const auto ring = RawRing(peer);
    const PeerId id = node_handler_.up.back();
    const uint64_t bad = uint64_t{1} << 40;
    ASSERT_EQ(pwrite(ring_fd_.get(), &bad, sizeof(bad), static_cast<off_t>(word)), 8);
    const Bytes body(1 << 20);
    pair_->node().Send(id, Frame(FrameType::kPong, 1, body)).IgnoreError();
    EXPECT_TRUE(Closed(peer));
    ASSERT_THAT(node_handler_.down[id], SizeIs(1));
    EXPECT_THAT(std::string(node_handler_.down[id][0].message()), HasSubstr("position in the ring"));
  }
  EXPECT_EQ(pair_->node().counters().at("bad_frames_total"), 2u);
}

TEST_F(SocketRing, GarbageInTheRingOrBesideItClosesThePeer) {
  for (const bool in_ring : {true, false}) {
    RawPeer peer(pair_->address());
    const auto ring = RawRing(peer);
    Bytes garbage(200, std::byte{0x5a});
    if (in_ring) {
      const iovec piece{garbage.data(), garbage.size()};
      ASSERT_EQ(ring->Write(absl::MakeConstSpan(&piece, 1)), 200);
    } else {
      peer.Send(garbage);
    }
    EXPECT_TRUE(Closed(peer));
  }
  EXPECT_EQ(pair_->node().counters().at("bad_frames_total"), 2u);
  EXPECT_THAT(node_handler_.frames, IsEmpty());
}

TEST_F(SocketRing, AnAnswerToNoOfferClosesThePeer) {
  RawPeer peer(pair_->address());
  ASSERT_TRUE(peer.Send(RawPeer::HelloFrame(RawPeer::GoodHello())));
  Settle();
  ASSERT_TRUE(peer.Send(RawPeer::Frame(FrameHeader{.type = FrameType::kRing, .flags = kFlagUseRing}, {})));
  EXPECT_TRUE(Closed(peer));
  EXPECT_EQ(pair_->node().counters().at("bad_frames_total"), 1u);
}

TEST_F(SocketRing, AFloodOfBellsCostsLittleAndNobodyElse) {
  RawPeer noisy(pair_->address());
  const auto ring = RawRing(noisy);
  const PeerId peer = ConnectUp();
  const Bytes bells(1 << 16, std::byte{'!'});
  for (uint64_t id = 1; id <= 100; ++id) {
    noisy.Send(bells);
    ASSERT_TRUE(pair_->client().Send(peer, Frame(FrameType::kPing, id)).ok());
    for (int i = 0; i < 20; ++i) pair_->Step();
    ASSERT_THAT(node_handler_.frames, SizeIs(id));
  }
  EXPECT_EQ(pair_->node().counters().at("bad_frames_total"), 0u);
  EXPECT_TRUE(noisy.Drain()) << "still up";
}

// A node that offers what is no ring: the client goes on over the socket and says why.
TEST_F(SocketRing, OffersThatCannotBeUsedLeaveTheSocket) {
  struct Offer {
    size_t bytes;
    unsigned seals;
    size_t fds;
    const char* why;
  };
  constexpr unsigned kSealed = F_SEAL_GROW | F_SEAL_SHRINK;
  const std::vector<Offer> offers = {{4096 + 16384, 0, 2, "not sealed"},
                                     {4096 + 16384, F_SEAL_GROW, 2, "not sealed"},
                                     {4096, kSealed, 2, "a ring of 4096 bytes"},
                                     {4096 + 16384, kSealed, 1, "no descriptor came"}};
  for (const Offer& offer : offers) {
    const std::string name = FreshUnixAddress();
    const UniqueFd listener = *SocketAddress::Parse(name)->Listen();
    ConnectOptions options;
    options.hello = RawPeer::GoodHello();
    const size_t before = client_handler_.up.size();
    const PeerId peer = *pair_->client().Connect(name, options);
    Settle();
    RawPeer node(UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(fd.get(), static_cast<off_t>(offer.bytes)), 0);
    ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, offer.seals), 0);
    HelloAck ack;
    ack.regions = {{1, arena_->bytes()}, {kRingRegion, offer.bytes}};
    Bytes body;
    ack.Encode(body);
    std::vector<int> fds = {arena_->fd(), fd.get()};
    fds.resize(offer.fds);
    ASSERT_TRUE(node.Send(RawPeer::Frame(FrameHeader{.type = FrameType::kHelloAck}, body), fds));
    ASSERT_TRUE(Until([&] { return client_handler_.up.size() > before; }));
    const PeerPath* path = pair_->client().Path(peer);
    EXPECT_TRUE(path->one_sided);
    EXPECT_THAT(path->memory, HasSubstr("frames over the socket"));
    EXPECT_THAT(path->memory, HasSubstr(offer.why));
    node.Drain();
    EXPECT_EQ(node.received().back(), std::byte{0});
    pair_->client().Fence(peer, absl::CancelledError("done"));
  }
}

// F61: an older node never offers, and reads our HELLO as it was in version 1.
TEST_F(SocketRing, F61_ANodeOfVersion1IsSpokenToAsBefore) {
  const std::string name = FreshUnixAddress();
  const UniqueFd listener = *SocketAddress::Parse(name)->Listen();
  ConnectOptions options;
  options.hello = RawPeer::GoodHello();
  const PeerId peer = *pair_->client().Connect(name, options);
  Settle();
  RawPeer node(UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
  node.Drain();
  EXPECT_EQ(node.received()[4], std::byte{1}) << "HELLO goes out as version 1";
  HelloAck ack;
  ack.version = 1;
  Bytes body;
  ack.Encode(body);
  ASSERT_TRUE(node.Send(RawPeer::Frame(FrameHeader{.version = 1, .type = FrameType::kHelloAck}, body)));
  ASSERT_TRUE(Until([&] { return client_handler_.up.size() == 1; }));
  const size_t before = node.received().size();
  Settle();
  node.Drain();
  EXPECT_EQ(node.received().size(), before) << "no word on rings";
  ASSERT_TRUE(pair_->client().Send(peer, Frame(FrameType::kPing, 1)).ok());
  node.Drain();
  EXPECT_EQ(node.received()[before + 4], std::byte{1});
}

// Two threads that sleep on WaitFd or spin, as a seed says, with frames and payloads larger than the ring:
// a wake-up that is lost ends the test.
TEST_F(SocketRing, ThreadsThatSleepAndSpinAtRandomAlwaysGoOn) {
  constexpr uint64_t kSeed = 5;
  constexpr uint64_t kRounds = 3000;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  const PeerId peer = ConnectUp();
  const PeerId node_peer = node_handler_.up.back();
  const Bytes payload(700'000, std::byte{3});
  node_handler_.on_frame = [&](PeerId from, const InFrame& frame) {
    OutFrame reply = Frame(FrameType::kReadReply, frame.header.request_id);
    const ConstSegment segment{payload.data(), payload.size()};
    if (frame.header.request_id % 7 == 0) reply.payload = absl::MakeConstSpan(&segment, 1);
    ASSERT_TRUE(pair_->node().Send(from, reply).ok());
  };
  std::atomic<bool> stop{false}, forgotten{false};
  const auto turn = [&](SocketTransport& transport, Random& random, const std::function<bool()>& done) {
    int idle = 0;
    while (!done() && !forgotten) {
      if (transport.Poll()) {
        idle = 0;
        continue;
      }
      if (++idle < static_cast<int>(random.Below(200))) continue;
      transport.SetSpinning(false);
      pollfd ready{transport.WaitFd(), POLLIN, 0};
      if (poll(&ready, 1, 30'000) == 0 && !done()) forgotten = true;
      transport.SetSpinning(random.Chance(0.7));
      idle = 0;
    }
  };
  const UniqueFd quit(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ASSERT_TRUE(pair_->node().AddWakeFd(quit.get()).ok());
  std::thread node([&] {
    Random random(kSeed);
    turn(pair_->node(), random, [&] { return stop.load(); });
  });
  Random random(kSeed + 1);
  for (uint64_t id = 1; id <= kRounds && !forgotten; ++id) {
    const Bytes body(random.Chance(0.05) ? 300'000 : random.Below(300));
    ASSERT_TRUE(pair_->client().Send(peer, Frame(FrameType::kLookup, id, body)).ok());
    turn(pair_->client(), random, [&] { return client_handler_.frames.size() == id; });
    client_handler_.landing.clear();
  }
  stop = true;
  const uint64_t one = 1;
  ASSERT_EQ(write(quit.get(), &one, sizeof(one)), 8);
  node.join();
  EXPECT_FALSE(forgotten) << "asleep for ever at request " << client_handler_.frames.size();
  EXPECT_THAT(client_handler_.frames, SizeIs(kRounds));
  EXPECT_EQ(pair_->node().Path(node_peer)->memory, kRingText);
}

}  // namespace
}  // namespace cistern
