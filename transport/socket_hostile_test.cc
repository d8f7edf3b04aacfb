// What strangers and broken peers may do to a listening SocketTransport.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "core/random.h"
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
uint64_t PeakKiB() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmSize:")) return std::stoull(line.substr(7));
  }
  return 0;
}

class SocketHostile : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    pair_ = std::make_unique<SocketPair>(client_handler_, node_handler_,
                                         GetParam() ? FreshUnixAddress() : "tcp:127.0.0.1:0");
  }
  bool Until(const std::function<bool()>& done) {
    for (int i = 0; i < 200'000; ++i) {
      if (done()) return true;
      pair_->Step();
    }
    return done();
  }
  bool Closed(RawPeer& peer) {
    return Until([&] { return !peer.Drain(); });
  }
  uint64_t Counter(const char* name) { return pair_->node().counters().at(name); }
  // The refusal that came, as "code message".
  static std::string Refusal(const RawPeer& peer) {
    const Bytes& bytes = peer.received();
    if (bytes.size() < kFrameHeaderBytes) return "nothing came";
    const auto header = DecodeFrameHeader(bytes);
    if (!header.ok() || header->type != FrameType::kRefused) return "something else came";
    if (bytes.size() % kFrameAlignBytes != 0) return "a frame without its padding came";
    Refused refused;
    const auto status = refused.Decode(ByteView(bytes).subspan(kFrameHeaderBytes, header->body_bytes));
    return status.ok() ? absl::StatusCodeToString(refused.code) + " " + refused.message : "malformed refusal";
  }
  void Welcome(RawPeer& peer) {
    ASSERT_TRUE(peer.Send(RawPeer::HelloFrame(RawPeer::GoodHello())));
    const size_t before = node_handler_.up.size();
    ASSERT_TRUE(Until([&] { return node_handler_.up.size() > before; }));
  }

  RecordingHandler client_handler_, node_handler_;
  std::unique_ptr<SocketPair> pair_;
  std::vector<UniqueFd> held_;
};
INSTANTIATE_TEST_SUITE_P(Both, SocketHostile, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "unix" : "tcp"; });

TEST_P(SocketHostile, S03_FramesBeforeHelloReachNoHandler) {
  for (const FrameType type : {FrameType::kLookup, FrameType::kPut, FrameType::kDrop, FrameType::kStats,
                               FrameType::kPing, FrameType::kHelloAck, FrameType::kRefused}) {
    RawPeer peer(pair_->address());
    // All that a HELLO needs but its type, and where there may be one a payload.
    FrameHeader header;
    header.type = type;
    header.payload_bytes = type == FrameType::kPut ? 100 : 0;
    Bytes body;
    RawPeer::GoodHello().Encode(body);
    Bytes bytes = RawPeer::Frame(header, body);
    bytes.resize(bytes.size() + header.payload_bytes);
    peer.Send(bytes);
    EXPECT_TRUE(Closed(peer));
  }
  EXPECT_EQ(Counter("bad_frames_total"), 7u);
  EXPECT_THAT(node_handler_.frames, IsEmpty());
  EXPECT_THAT(node_handler_.hellos, IsEmpty());
  EXPECT_THAT(node_handler_.down, IsEmpty());
  EXPECT_EQ(node_handler_.payloads, 0);
}

TEST_P(SocketHostile, S03_WhatFollowsARefusedHelloReachesNoHandler) {
  RawPeer peer(pair_->address());
  Hello hello = RawPeer::GoodHello();
  hello.ticket = "bad";
  Bytes bytes = RawPeer::HelloFrame(hello);
  FrameHeader header;
  header.type = FrameType::kDrop;
  const Bytes drop = RawPeer::Frame(header, {});
  bytes.insert(bytes.end(), drop.begin(), drop.end());
  ASSERT_TRUE(peer.Send(bytes));
  EXPECT_TRUE(Closed(peer));
  EXPECT_EQ(Refusal(peer), "PERMISSION_DENIED ticket refused");
  EXPECT_EQ(Counter("hello_refused_total"), 1u);
  EXPECT_THAT(node_handler_.frames, IsEmpty());
}

TEST_P(SocketHostile, S13_AnnouncingATebibyteIsRefusedAndCostsNothing) {
  RawPeer known(pair_->address());
  Welcome(known);
  const uint64_t before = PeakKiB();
  FrameHeader header;
  header.type = FrameType::kPut;
  header.payload_bytes = uint64_t{1} << 40;
  ASSERT_TRUE(known.Send(RawPeer::Frame(header, {})));
  EXPECT_TRUE(Closed(known));
  // As much as is legal, announced by many, of which nothing comes.
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 50; ++i) {
    peers.push_back(std::make_unique<RawPeer>(pair_->address()));
    Welcome(*peers.back());
    Bytes raw = RawPeer::Frame(FrameHeader{.type = FrameType::kLookup}, {});
    StoreLe<uint32_t>(raw.data() + 16, kBodyBytesMax);
    StoreLe<uint32_t>(raw.data() + 36, Crc32c(raw.data(), 36));
    ASSERT_TRUE(peers.back()->Send(raw));
  }
  for (int i = 0; i < 100; ++i) pair_->Step();
  EXPECT_LT(PeakKiB() - before, 50 * 128 + 1024u) << "memory was taken for bytes that were only announced";
  EXPECT_EQ(Counter("bad_frames_total"), 1u);
}

TEST_P(SocketHostile, AHelloThatIsTooLongIsClosedOnItsHeader) {
  RawPeer peer(pair_->address());
  Bytes raw = RawPeer::HelloFrame(RawPeer::GoodHello());
  StoreLe<uint32_t>(raw.data() + 16, kHelloFrameBytesMax + 1);
  StoreLe<uint32_t>(raw.data() + 36, Crc32c(raw.data(), 36));
  ASSERT_TRUE(peer.Send(raw));
  EXPECT_TRUE(Closed(peer));
  EXPECT_EQ(Counter("bad_frames_total"), 1u);
}

TEST_P(SocketHostile, SilenceIsClosedAtTheDeadline) {
  RawPeer silent(pair_->address()), drip(pair_->address());
  ASSERT_TRUE(Until([&] { return pair_->node().peer_count() == 2; }));
  const Bytes hello = RawPeer::HelloFrame(RawPeer::GoodHello());
  drip.Send(ByteView(hello).first(20));
  pair_->clock().Advance(kHandshakeDeadline - 1);
  for (int i = 0; i < 50; ++i) pair_->Step();
  EXPECT_TRUE(silent.Drain());
  pair_->clock().Advance(1);
  EXPECT_TRUE(Closed(silent));
  EXPECT_TRUE(Closed(drip));
  EXPECT_EQ(Counter("handshake_timeouts_total"), 2u);
  EXPECT_EQ(pair_->node().peer_count(), 0u);
}

TEST_P(SocketHostile, StrangersAreBoundedAndDoNotShutOutOthersForLong) {
  std::vector<std::unique_ptr<RawPeer>> strangers;
  for (size_t i = 0; i < kUnauthenticatedPeersMax + 10; ++i) {
    strangers.push_back(std::make_unique<RawPeer>(pair_->address()));
  }
  ASSERT_TRUE(Until([&] { return Counter("socket_accepted_total") == strangers.size(); }));
  EXPECT_EQ(pair_->node().peer_count(), kUnauthenticatedPeersMax);
  EXPECT_EQ(Counter("strangers_dropped_total"), 10u);
  for (size_t i = 0; i < strangers.size(); ++i) EXPECT_EQ(strangers[i]->Drain(), i >= 10) << "the oldest go";
  RawPeer friendly(pair_->address());
  Welcome(friendly);  // Without waiting for anybody's deadline.
  EXPECT_EQ(pair_->node().peer_count(), kUnauthenticatedPeersMax);
  EXPECT_EQ(Counter("handshake_timeouts_total"), 0u);
  EXPECT_EQ(Counter("peers_refused_total"), 0u);
  pair_->clock().Advance(kHandshakeDeadline);
  ASSERT_TRUE(Until([&] { return pair_->node().peer_count() == 1; }));
}

// Many that come at once, each with its HELLO: nobody's place goes to another.
TEST_P(SocketHostile, ARushOfPeersThatSayHelloLosesNone) {
  std::vector<std::unique_ptr<RawPeer>> rush;
  for (size_t i = 0; i < kUnauthenticatedPeersMax; ++i)
    rush.push_back(std::make_unique<RawPeer>(pair_->address()));
  ASSERT_TRUE(Until([&] { return Counter("socket_accepted_total") == rush.size(); }));
  for (const auto& peer : rush) ASSERT_TRUE(peer->Send(RawPeer::HelloFrame(RawPeer::GoodHello())));
  std::vector<std::unique_ptr<RawPeer>> late;
  for (size_t i = 0; i < 30; ++i) late.push_back(std::make_unique<RawPeer>(pair_->address()));
  EXPECT_TRUE(Until([&] { return node_handler_.up.size() == rush.size(); }));
}

TEST_P(SocketHostile, F61_VersionAndAlgorithmRefusalsNameBothSidesAndAreCounted) {
  Hello hello = RawPeer::GoodHello();
  hello.version_min = hello.version_max = 3;
  Bytes later = RawPeer::HelloFrame(hello, 3);
  RawPeer old_header(pair_->address()), new_header(pair_->address()), algorithm(pair_->address());
  ASSERT_TRUE(old_header.Send(RawPeer::HelloFrame(hello)));
  ASSERT_TRUE(new_header.Send(later));
  Hello other = RawPeer::GoodHello();
  other.key_algorithm = "blake3/2";
  ASSERT_TRUE(algorithm.Send(RawPeer::HelloFrame(other)));
  EXPECT_TRUE(Closed(old_header) && Closed(new_header) && Closed(algorithm));
  EXPECT_EQ(Refusal(old_header), "FAILED_PRECONDITION wire versions 3 to 3 offered, 1 to 2 spoken here");
  EXPECT_EQ(Refusal(new_header), "FAILED_PRECONDITION wire versions 3 to 3 offered, 1 to 2 spoken here");
  EXPECT_THAT(Refusal(algorithm), HasSubstr("blake3/2"));
  EXPECT_THAT(Refusal(algorithm), HasSubstr(kKeyAlgorithm));
  EXPECT_EQ(Counter("version_refused_total"), 2u);
  EXPECT_EQ(Counter("algorithm_refused_total"), 1u);
  EXPECT_THAT(node_handler_.hellos, IsEmpty());
}

TEST_P(SocketHostile, HandshakeFramesLaterOnAndWrongChecksumsCloseThePeer) {
  Bytes hello = RawPeer::HelloFrame(RawPeer::GoodHello());
  Bytes flipped = RawPeer::Frame(FrameHeader{.type = FrameType::kLookup}, Bytes(100));
  flipped[70] ^= std::byte{4};
  for (const Bytes& bad : {hello, flipped}) {
    RawPeer peer(pair_->address());
    Welcome(peer);
    ASSERT_TRUE(peer.Send(bad));
    EXPECT_TRUE(Closed(peer));
    EXPECT_THAT(node_handler_.down[node_handler_.up.back()], SizeIs(1));
  }
  EXPECT_EQ(Counter("bad_frames_total"), 2u);
  EXPECT_THAT(node_handler_.frames, IsEmpty());
}

// F29: whatever comes to a listening port, as strangers and as known peers; no crash, closed with a counter,
// and those who behave are served.
TEST_P(SocketHostile, F29_FuzzedFramesCloseTheirConnectionOnly) {
  constexpr int kFrames = 100'000;
  constexpr uint64_t kSeed = 29;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  RawPeer witness(pair_->address());
  Welcome(witness);
  std::unique_ptr<RawPeer> peer;
  int connections = 0;
  for (int i = 0; i < kFrames; ++i) {
    if (peer == nullptr) {
      peer = std::make_unique<RawPeer>(pair_->address());
      ++connections;
      if (random.Chance(0.8)) peer->Send(RawPeer::HelloFrame(RawPeer::GoodHello()));
    }
    Bytes body(random.Below(random.Chance(0.02) ? 20'000 : 100));
    for (std::byte& byte : body) byte = static_cast<std::byte>(random.Next());
    FrameHeader header;
    header.type = static_cast<FrameType>(random.Below(42));
    header.request_id = random.Next();
    header.payload_bytes = random.Chance(0.3) ? random.Below(3000) : 0;
    Bytes bytes = RawPeer::Frame(header, body);
    bytes.resize(bytes.size() + header.payload_bytes);
    if (random.Chance(0.01)) bytes[random.Below(bytes.size())] ^= std::byte{1};
    const bool sent = peer->Send(bytes);
    if (i % 4 == 0) pair_->node().Poll();
    if (!sent || (i % 16 == 0 && !peer->Drain())) peer.reset();
  }
  peer.reset();
  ASSERT_TRUE(Until([&] { return pair_->node().peer_count() == 1; }));
  EXPECT_GT(Counter("bad_frames_total"), 100u);
  const size_t before = node_handler_.frames.size();
  ASSERT_TRUE(witness.Send(RawPeer::Frame(FrameHeader{.type = FrameType::kPing}, {})));
  ASSERT_TRUE(Until([&] { return node_handler_.frames.size() == before + 1; }));
}

TEST_P(SocketHostile, APeerThatTakesNoBytesIsClosedAfterItsTime) {
  RawPeer peer(pair_->address());
  Welcome(peer);
  const Bytes bytes(100 << 20);
  const ConstSegment segment{bytes.data(), bytes.size()};
  OutFrame frame;
  frame.type = FrameType::kReadReply;
  frame.payload = absl::MakeConstSpan(&segment, 1);
  EXPECT_FALSE(pair_->node().AwaitsBulk());
  frame.cookie = 1;
  ASSERT_TRUE(pair_->node().Send(node_handler_.up.back(), frame).ok());
  for (int i = 0; i < 1000; ++i) pair_->Step();
  EXPECT_TRUE(pair_->node().AwaitsBulk());  // Its owner sleeps rather than spins.
  pair_->clock().Advance(kStalledSendMax - 1);
  for (int i = 0; i < 100; ++i) pair_->Step();
  EXPECT_EQ(Counter("stalled_sends_total"), 0u);
  pair_->clock().Advance(1);
  ASSERT_TRUE(Until([&] { return Counter("stalled_sends_total") == 1; }));
  EXPECT_THAT(node_handler_.down[node_handler_.up.back()], SizeIs(1));
  EXPECT_FALSE(pair_->node().AwaitsBulk());
  EXPECT_THAT(node_handler_.sent, IsEmpty());
}

TEST_P(SocketHostile, LeaksNoDescriptorOverManyConnections) {
  const auto once = [&](int i) {
    RawPeer peer(pair_->address());
    if (i % 3 == 1) peer.Send(Bytes(50, std::byte{7}));
    if (i % 3 == 2) Welcome(peer);
  };
  for (int i = 0; i < 3; ++i) once(i);
  ASSERT_TRUE(Until([&] { return pair_->node().peer_count() == 0; }));
  const size_t before = OpenFds();
  for (int i = 0; i < 60; ++i) once(i);
  ASSERT_TRUE(Until([&] { return pair_->node().peer_count() == 0; }));
  EXPECT_EQ(OpenFds(), before);
}

TEST_P(SocketHostile, RunningOutOfDescriptorsClosesWhoComesAndRecovers) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself needs a descriptor to look at an object";
#endif
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit tight = old;
  tight.rlim_cur = OpenFds() + 1;  // The client's end takes the last one.
  auto peer = std::unique_ptr<RawPeer>();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  peer = std::make_unique<RawPeer>(pair_->address());
  while (true) {
    const int fd = open("/dev/null", O_RDONLY);  // Whatever numbers are still free.
    if (fd < 0) break;
    held_.emplace_back(fd);
  }
  const bool closed = Closed(*peer);
  held_.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_TRUE(closed);
  EXPECT_GE(Counter("accept_errors_total"), 1u);
  RawPeer next(pair_->address());
  Welcome(next);
}

}  // namespace
}  // namespace cistern
