// How a reader waits for a payload that is long beside a wake-up.
#include <algorithm>
#include <functional>

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

}  // namespace
}  // namespace cistern
