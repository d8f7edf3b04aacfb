// How a reader waits for a payload that is long beside a wake-up.
#include <algorithm>
#include <functional>
#include <map>
#include <new>

#include "core/random.h"
#include "transport/socket_raw_peer.h"
#include "transport/socket_test_pair.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 61;
constexpr uint64_t kPayloadBytes = 7u << 19;  // A stream at its beginning, none at its end.
constexpr int kWakeMs =
    1000;  // Bound of a wait that ends at once; below the handshake timer, which wakes too.

class SocketStream : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    pair_ = std::make_unique<SocketPair>(client_handler_, node_handler_,
                                         GetParam() ? FreshUnixAddress() : "tcp:127.0.0.1:0");
    peer_ = std::make_unique<RawPeer>(pair_->address());
    ASSERT_TRUE(peer_->Send(RawPeer::HelloFrame(RawPeer::GoodHello())));
    ASSERT_TRUE(Until([&] { return node_handler_.up.size() == 1; }));
    payload_.resize(kPayloadBytes);
    Random random(kSeed);
    for (std::byte& byte : payload_) byte = static_cast<std::byte>(random.Next());
  }
  bool Until(const std::function<bool()>& done) {
    for (int i = 0; i < 200'000; ++i) {
      if (done()) return true;
      pair_->Step();
    }
    return done();
  }
  void SendHead() {
    FrameHeader header;
    header.type = FrameType::kPut;
    header.request_id = 9;
    header.payload_bytes = kPayloadBytes;
    ASSERT_TRUE(peer_->Send(RawPeer::Frame(header, {})));
  }
  // The payload's bytes up to `end`, taken by the node as they come.
  void SendUpTo(size_t end) {
    ASSERT_TRUE(Until([&] {
      const ssize_t sent =
          send(peer_->fd(), payload_.data() + sent_, end - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) sent_ += static_cast<size_t>(sent);
      return sent_ == end;
    }));
    for (int i = 0; i < 100; ++i) pair_->Step();
  }
  bool Woken(int wait_ms) {
    pollfd ready{pair_->node().WaitFd(), POLLIN, 0};
    return poll(&ready, 1, wait_ms) == 1;
  }

  RecordingHandler client_handler_, node_handler_;
  std::unique_ptr<SocketPair> pair_;
  std::unique_ptr<RawPeer> peer_;
  Bytes payload_;
  size_t sent_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Both, SocketStream, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "unix" : "tcp"; });

TEST_P(SocketStream, IsSleptForUntilItsEndIsNear) {
  EXPECT_FALSE(pair_->node().AwaitsBulk());
  SendHead();
  SendUpTo(1u << 20);
  EXPECT_TRUE(pair_->node().AwaitsBulk());
  SendUpTo(2u << 20);
  EXPECT_FALSE(pair_->node().AwaitsBulk());
  // A single byte wakes again.
  ASSERT_FALSE(Woken(0));
  ASSERT_EQ(send(peer_->fd(), payload_.data() + sent_, 1, MSG_NOSIGNAL), 1);
  ++sent_;
  EXPECT_TRUE(Woken(kWakeMs));
  SendUpTo(kPayloadBytes);
  ASSERT_TRUE(Until([&] { return node_handler_.frames.size() == 1; }));
  EXPECT_TRUE(node_handler_.landing[9] == payload_);
  ASSERT_FALSE(Woken(0));
  ASSERT_TRUE(peer_->Send(RawPeer::Frame(FrameHeader{.type = FrameType::kPing}, {})));
  EXPECT_TRUE(Woken(kWakeMs));
}

TEST_P(SocketStream, WakesForAStepNotForAByte) {
  SendHead();
  SendUpTo(1u << 20);
  ASSERT_TRUE(pair_->node().AwaitsBulk());
  ASSERT_FALSE(Woken(0));
  ASSERT_EQ(send(peer_->fd(), payload_.data() + sent_, 1, MSG_NOSIGNAL), 1);
  ++sent_;
  EXPECT_EQ(Woken(0), GetParam());  // Unix sockets know no low-water mark.
  // Nobody reads: as much as the connection takes is more than a step.
  while (true) {
    const ssize_t sent =
        send(peer_->fd(), payload_.data() + sent_, kPayloadBytes - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) break;
    sent_ += static_cast<size_t>(sent);
  }
  EXPECT_TRUE(Woken(kWakeMs));
  SendUpTo(kPayloadBytes);
  ASSERT_TRUE(Until([&] { return node_handler_.frames.size() == 1; }));
  EXPECT_TRUE(node_handler_.landing[9] == payload_);
}

TEST_P(SocketStream, EndsWithItsPeer) {
  SendHead();
  SendUpTo(1u << 20);
  ASSERT_TRUE(pair_->node().AwaitsBulk());
  peer_.reset();
  EXPECT_TRUE(Woken(kWakeMs));
  ASSERT_TRUE(Until([&] { return !node_handler_.down.empty(); }));
  EXPECT_FALSE(pair_->node().AwaitsBulk());
}

// What one peer's reader had received ahead when the handler found no memory is its own, whoever reads next.
TEST(SocketScratch, KeepsWhatWasReadAheadWhereMemoryEnded) {
  RecordingHandler client_handler, node_handler;
  SocketPair pair(client_handler, node_handler, "tcp:127.0.0.1:0");
  const auto until = [&](const std::function<bool()>& done) {
    for (int i = 0; i < 200'000 && !done(); ++i) {
      try {
        pair.Step();
      } catch (const std::bad_alloc&) {
      }
    }
    return done();
  };
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (size_t i = 0; i < 2; ++i) {
    peers.push_back(std::make_unique<RawPeer>(pair.address()));
    ASSERT_TRUE(peers[i]->Send(RawPeer::HelloFrame(RawPeer::GoodHello())));
    ASSERT_TRUE(until([&] { return node_handler.up.size() == i + 1; }));
  }
  // Frames of payloads, so that what comes next is received ahead.
  constexpr uint64_t kFrames = 8;
  std::map<uint64_t, Bytes> payloads;
  const auto frames = [&](uint64_t first_id, std::byte fill) {
    Bytes all;
    for (uint64_t id = first_id; id < first_id + kFrames; ++id) {
      payloads[id] = Bytes(3000, fill ^ static_cast<std::byte>(id));
      FrameHeader header;
      header.type = FrameType::kPut;
      header.request_id = id;
      header.payload_bytes = payloads[id].size();
      const Bytes head = RawPeer::Frame(header, {});
      all.insert(all.end(), head.begin(), head.end());
      all.insert(all.end(), payloads[id].begin(), payloads[id].end());
    }
    return all;
  };
  for (size_t i = 0; i < 2; ++i) {  // The first frame of a connection is not read ahead.
    ASSERT_TRUE(peers[i]->Send(frames(1 + 100 * i, std::byte{1})));
    ASSERT_TRUE(until([&] { return node_handler.frames.size() == kFrames * (i + 1); }));
  }
  for (const size_t first : {0, 1}) {  // Whichever of them the transport looks at first.
    bool throws = true;
    node_handler.on_payload = [&](PeerId, const FrameHeader&) {
      if (std::exchange(throws, false)) throw std::bad_alloc();  // It is offered again.
    };
    const size_t before = node_handler.frames.size();
    ASSERT_TRUE(peers[first]->Send(frames(1000 * (first + 1), std::byte{0x55})));
    ASSERT_TRUE(until([&] { return !throws; }));
    ASSERT_TRUE(peers[1 - first]->Send(frames(1000 * (first + 1) + 500, std::byte{0xaa})));
    ASSERT_TRUE(until(
        [&] { return node_handler.frames.size() == before + 2 * kFrames || !node_handler.down.empty(); }));
  }
  EXPECT_TRUE(node_handler.down.empty());
  for (const auto& [id, bytes] : payloads) EXPECT_EQ(node_handler.landing[id], bytes) << id;
}

}  // namespace
}  // namespace cistern
