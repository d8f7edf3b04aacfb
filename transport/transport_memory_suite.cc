#include <new>
#include <utility>

#include "core/testing/failing_new.h"
#include "transport/transport_suite.h"

// What every pair of transports does when memory ends at any one allocation of a Send.
namespace cistern {
namespace {

constexpr int kAllocationsMax = 1000;

#if defined(__SANITIZE_THREAD__)
#define CISTERN_NEEDS_FAILING_NEW \
  GTEST_SKIP() << "no allocation fails where ThreadSanitizer has the operators"
#else
#define CISTERN_NEEDS_FAILING_NEW static_assert(true)
#endif

struct Attempt {
  bool thrown = false;
  bool past_all = false;  // There were fewer allocations.
};

Attempt SendWithoutMemoryAt(int at, Transport& from, PeerId to, const OutFrame& frame) {
  Attempt attempt;
  t_allocations_left = at;
  try {
    from.Send(to, frame).IgnoreError();
  } catch (const std::bad_alloc&) {
    attempt.thrown = true;
  }
  attempt.past_all = std::exchange(t_allocations_left, -1) >= 0;
  return attempt;
}

}  // namespace

// The caller has its payload back with the exception: none of it may go anywhere later, and what went needs
// no second sending.
TEST_P(TransportSuite, ASendWithoutMemorySendsNothing) {
  CISTERN_NEEDS_FAILING_NEW;
  const Bytes body = Pattern(3000, 1), payload = Pattern(9000, 2);
  for (const bool flush : {true, false}) {
    Attempt attempt;
    for (int at = 0; at < kAllocationsMax && !attempt.past_all; ++at) {
      SCOPED_TRACE(::testing::Message() << (flush ? "at once, " : "with the next, ") << "allocation " << at);
      ConnectAnew();
      const std::vector<ConstSegment> segments = {{payload.data(), 4000}, {payload.data() + 4000, 5000}};
      OutFrame frame = Frame(FrameType::kPut, 1, body);
      frame.flush = flush;
      if (flush) frame.payload = segments, frame.cookie = 7;
      attempt = SendWithoutMemoryAt(at, pair_->client(), client_, frame);
      ASSERT_TRUE(pair_->client().Send(client_, Frame(FrameType::kPing, 2)).ok());
      ASSERT_TRUE(Until([&] { return NodeGot(2) == 1; }));
      EXPECT_EQ(NodeGot(1), attempt.thrown ? 0u : 1u);
      if (flush && !attempt.thrown) {
        EXPECT_TRUE(Until([&] { return client_handler_.sent == std::vector<uint64_t>{7}; }));
        EXPECT_EQ(node_handler_.landing[1], payload);
      }
      Settle(20);
      EXPECT_EQ(client_handler_.sent.size(), flush && !attempt.thrown ? 1u : 0u);
    }
    EXPECT_TRUE(attempt.past_all);
  }
}

// What waits already is sent whole and told of, whatever becomes of the next.
TEST_P(TransportSuite, ASendWithoutMemoryHarmsNoFrameBefore) {
  CISTERN_NEEDS_FAILING_NEW;
  const Bytes body = Pattern(3000, 1), payload = Pattern(9000, 2);
  const std::vector<ConstSegment> segments = {{payload.data(), payload.size()}};
  Attempt attempt;
  for (int at = 0; at < kAllocationsMax && !attempt.past_all; ++at) {
    SCOPED_TRACE(at);
    ConnectAnew();
    OutFrame frame = Frame(FrameType::kPut, 1, body);
    frame.flush = false;
    frame.payload = segments;
    frame.cookie = 7;
    ASSERT_TRUE(pair_->client().Send(client_, frame).ok());
    attempt = SendWithoutMemoryAt(at, pair_->client(), client_, Frame(FrameType::kPing, 2, body));
    EXPECT_TRUE(Until([&] {
      return client_handler_.sent == std::vector<uint64_t>{7} && NodeGot(1) == 1 &&
             NodeGot(2) == (attempt.thrown ? 0u : 1u);
    }));
    EXPECT_EQ(node_handler_.landing[1], payload);
    EXPECT_TRUE(client_handler_.down.empty());
  }
  EXPECT_TRUE(attempt.past_all);
}

TEST_P(TransportSuite, APeersEndIsToldThoughASendToItHadNoMemory) {
  CISTERN_NEEDS_FAILING_NEW;
  const Bytes body = Pattern(3000, 1);
  Attempt attempt;
  for (int at = 0; at < kAllocationsMax && !attempt.past_all; ++at) {
    SCOPED_TRACE(at);
    ConnectAnew();
    pair_->KillClient();
    attempt = SendWithoutMemoryAt(at, pair_->node(), node_, Frame(FrameType::kPong, 1, body));
    EXPECT_TRUE(Until([&] { return node_handler_.down[node_].size() == 1; }));
  }
  EXPECT_TRUE(attempt.past_all);
}

}  // namespace cistern
