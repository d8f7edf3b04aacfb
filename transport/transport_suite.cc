#include "transport/transport_suite.h"

#include <algorithm>

#include "core/crc32c.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_P(TransportSuite, CarriesFramesBothWaysInOrder) {
  ConnectUp();
  const Bytes small = Pattern(100, 1);
  const Bytes large = Pattern(300'000, 2);
  for (uint64_t id = 1; id <= 20; ++id) {
    ASSERT_TRUE(
        pair_->client().Send(client_, Frame(FrameType::kLookup, id, id % 5 == 0 ? large : small)).ok());
    ASSERT_TRUE(pair_->node().Send(node_, Frame(FrameType::kLookupReply, 100 + id, small)).ok());
  }
  ASSERT_TRUE(
      Until([&] { return node_handler_.frames.size() == 20 && client_handler_.frames.size() == 20; }));
  for (uint64_t id = 1; id <= 20; ++id) {
    EXPECT_EQ(node_handler_.frames[id - 1].header.request_id, id);
    EXPECT_EQ(node_handler_.frames[id - 1].body, id % 5 == 0 ? large : small);
    EXPECT_EQ(client_handler_.frames[id - 1].header.request_id, 100 + id);
  }
}

TEST_P(TransportSuite, LandsPayloadInPlaceWithChecksums) {
  ConnectUp();
  const Bytes bytes = Pattern(1'000'003, 3);
  const Bytes body = Pattern(60, 4);
  const std::vector<ConstSegment> segments = {
      {bytes.data(), 1}, {bytes.data() + 1, 70'000}, {bytes.data() + 70'001, bytes.size() - 70'001}};
  OutFrame frame = Frame(FrameType::kPlanReply, 9, body);
  frame.payload = segments;
  frame.cookie = 77;
  client_handler_.piece_bytes = 99'999;
  client_handler_.drain_every = 4;
  ASSERT_TRUE(pair_->node().Send(node_, frame).ok());
  ASSERT_TRUE(Until([&] { return client_handler_.frames.size() == 1 && node_handler_.sent.size() == 1; }));
  EXPECT_THAT(node_handler_.sent, ElementsAre(77));
  const auto& seen = client_handler_.frames[0];
  EXPECT_EQ(seen.body, body);
  EXPECT_EQ(seen.header.payload_bytes, bytes.size());
  ASSERT_THAT(seen.crcs, SizeIs(11));
  const Bytes& landed = client_handler_.landing[9];
  for (size_t i = 0; i < 11; ++i) {
    const size_t at = i * 99'999;
    const size_t n = std::min<size_t>(99'999, bytes.size() - at);
    if ((i + 1) % 4 == 0) {
      EXPECT_EQ(landed[at], std::byte{0xee}) << "a drained piece was written";
      continue;
    }
    EXPECT_EQ(seen.crcs[i], Crc32c(bytes.data() + at, n));
    EXPECT_TRUE(std::equal(landed.begin() + static_cast<ptrdiff_t>(at),
                           landed.begin() + static_cast<ptrdiff_t>(at + n),
                           bytes.begin() + static_cast<ptrdiff_t>(at)));
  }
}

TEST_P(TransportSuite, DrainsAPayloadTheHandlerRefusesAndGoesOn) {
  ConnectUp();
  const Bytes bytes = Pattern(500'000, 5);
  const ConstSegment segment{bytes.data(), bytes.size()};
  OutFrame frame = Frame(FrameType::kPut, 1);
  frame.payload = absl::MakeConstSpan(&segment, 1);
  node_handler_.refuse_payload = true;
  ASSERT_TRUE(pair_->client().Send(client_, frame).ok());
  ASSERT_TRUE(pair_->client().Send(client_, Frame(FrameType::kLookup, 2)).ok());
  ASSERT_TRUE(Until([&] { return !node_handler_.frames.empty(); }));
  EXPECT_EQ(node_handler_.payloads, 1);
  EXPECT_EQ(node_handler_.frames[0].header.request_id, 2u);
}

TEST_P(TransportSuite, RefusesAPeerWhosePayloadHasAnotherSize) {
  ConnectUp();
  const Bytes bytes = Pattern(5000, 5);
  const ConstSegment segment{bytes.data(), bytes.size()};
  OutFrame frame = Frame(FrameType::kPut, 1);
  frame.payload = absl::MakeConstSpan(&segment, 1);
  node_handler_.short_plan = 1;
  ASSERT_TRUE(pair_->client().Send(client_, frame).ok());
  ASSERT_TRUE(Until([&] { return node_handler_.down.count(node_) == 1; }));
  EXPECT_THAT(node_handler_.frames, IsEmpty());
  ASSERT_TRUE(Until([&] { return client_handler_.down.count(client_) == 1; }));
}

TEST_P(TransportSuite, CancelsAReplyThatHasNotBegun) {
  ConnectUp();
  const Bytes bytes = Pattern(300'000, 6);
  const ConstSegment segment{bytes.data(), bytes.size()};
  if (!pair_->client().Cancel(client_, 5)) GTEST_SKIP() << "this path cannot cancel one request";
  OutFrame frame = Frame(FrameType::kReadReply, 5);
  frame.payload = absl::MakeConstSpan(&segment, 1);
  ASSERT_TRUE(pair_->node().Send(node_, frame).ok());
  ASSERT_TRUE(pair_->node().Send(node_, Frame(FrameType::kLookupReply, 6)).ok());
  ASSERT_TRUE(Until([&] { return !client_handler_.frames.empty(); }));
  EXPECT_EQ(client_handler_.frames[0].header.request_id, 6u);
  EXPECT_EQ(client_handler_.payloads, 0);
}

TEST_P(TransportSuite, CancelsAReplyMidwayAndWritesNoLaterByte) {
  ConnectUp();
  const Bytes bytes = Pattern(24 << 20, 7);
  const ConstSegment segment{bytes.data(), bytes.size()};
  OutFrame frame = Frame(FrameType::kReadReply, 5);
  frame.payload = absl::MakeConstSpan(&segment, 1);
  ASSERT_TRUE(pair_->node().Send(node_, frame).ok());
  ASSERT_TRUE(Until([&] {
    const Bytes& landed = client_handler_.landing[5];
    return !landed.empty() && landed[1000] == bytes[1000];
  }));
  Bytes& landed = client_handler_.landing[5];
  ASSERT_EQ(landed.back(), std::byte{0xee}) << "all of it came at once: the test tests nothing";
  if (!pair_->client().Cancel(client_, 5)) GTEST_SKIP() << "this path cannot cancel one request";
  std::fill(landed.begin(), landed.end(), std::byte{0x11});  // Canaries: the memory is the caller's again.
  ASSERT_TRUE(pair_->node().Send(node_, Frame(FrameType::kLookupReply, 6)).ok());
  ASSERT_TRUE(Until([&] { return !client_handler_.frames.empty(); }));
  EXPECT_EQ(client_handler_.frames[0].header.request_id, 6u);
  EXPECT_TRUE(std::all_of(landed.begin(), landed.end(), [](std::byte b) { return b == std::byte{0x11}; }));
}

TEST_P(TransportSuite, FenceMidwayWritesNoLaterByteAndReadsNoLaterPayload) {
  ConnectUp();
  Bytes bytes = Pattern(24 << 20, 8);
  const ConstSegment segment{bytes.data(), bytes.size()};
  OutFrame frame = Frame(FrameType::kReadReply, 5);
  frame.payload = absl::MakeConstSpan(&segment, 1);
  frame.cookie = 3;
  ASSERT_TRUE(pair_->node().Send(node_, frame).ok());
  ASSERT_TRUE(Until([&] {
    const Bytes& landed = client_handler_.landing[5];
    return !landed.empty() && landed[1000] == bytes[1000];
  }));
  pair_->client().Fence(client_, absl::DeadlineExceededError("test"));
  ASSERT_THAT(client_handler_.down[client_], SizeIs(1));
  EXPECT_EQ(client_handler_.down[client_][0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(pair_->client().Path(client_), nullptr);
  Bytes& landed = client_handler_.landing[5];
  std::fill(landed.begin(), landed.end(), std::byte{0x11});
  ASSERT_TRUE(Until([&] { return node_handler_.down.count(node_) == 1; }));
  Settle();
  EXPECT_THAT(client_handler_.frames, IsEmpty());
  EXPECT_TRUE(std::all_of(landed.begin(), landed.end(), [](std::byte b) { return b == std::byte{0x11}; }));
  EXPECT_THAT(client_handler_.down[client_], SizeIs(1));
  EXPECT_THAT(node_handler_.down[node_], SizeIs(1));
  EXPECT_EQ(pair_->client().Send(client_, Frame(FrameType::kPing, 1)).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(pair_->client().Cancel(client_, 5));
}

TEST_P(TransportSuite, FullQueueSaysResourceExhaustedAndQueuesNothing) {
  ConnectUp();
  const Bytes body = Pattern(1 << 20, 9);
  int queued = 0;
  absl::Status status;
  while (queued < 5000) {
    status =
        pair_->client().Send(client_, Frame(FrameType::kLookup, static_cast<uint64_t>(queued) + 1, body));
    if (!status.ok()) break;
    ++queued;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GE(queued, 30);
  ASSERT_TRUE(Until([&] { return node_handler_.frames.size() == static_cast<size_t>(queued); }));
  for (int i = 0; i < queued; ++i) {
    ASSERT_EQ(node_handler_.frames[static_cast<size_t>(i)].header.request_id, static_cast<uint64_t>(i) + 1);
  }
}

TEST_P(TransportSuite, FrameThatMayWaitComesWithTheNextPoll) {
  ConnectUp();
  OutFrame frame = Frame(FrameType::kRelease, 1);
  frame.flush = false;
  ASSERT_TRUE(pair_->client().Send(client_, frame).ok());
  ASSERT_TRUE(Until([&] { return node_handler_.frames.size() == 1; }));
  ASSERT_TRUE(pair_->client().Send(client_, frame).ok());
  ASSERT_TRUE(pair_->client().Send(client_, Frame(FrameType::kLookup, 2)).ok());
  ASSERT_TRUE(Until([&] { return node_handler_.frames.size() == 3; }));
  EXPECT_EQ(node_handler_.frames[1].header.type, FrameType::kRelease);
}

TEST_P(TransportSuite, VanishedClientIsSeenAndItsPayloadIsNoLongerRead) {
  ConnectUp();
  auto bytes = std::make_unique<Bytes>(Pattern(24 << 20, 10));
  const ConstSegment segment{bytes->data(), bytes->size()};
  OutFrame frame = Frame(FrameType::kReadReply, 5);
  frame.payload = absl::MakeConstSpan(&segment, 1);
  frame.cookie = 4;
  ASSERT_TRUE(pair_->node().Send(node_, frame).ok());
  pair_->KillClient();
  ASSERT_TRUE(Until([&] { return node_handler_.down.count(node_) == 1; }));
  bytes.reset();  // ASan sees a late read.
  Settle();
  EXPECT_THAT(node_handler_.sent, IsEmpty());
  EXPECT_THAT(node_handler_.down[node_], SizeIs(1));
}

TEST_P(TransportSuite, CallbacksMaySendAndFence) {
  ConnectUp();
  const Bytes body = Pattern(10, 11);
  node_handler_.on_frame = [&](PeerId peer, const InFrame& frame) {
    ASSERT_TRUE(pair_->node().Send(peer, Frame(FrameType::kPong, frame.header.request_id, body)).ok());
    if (frame.header.request_id == 3) pair_->node().Fence(peer, absl::CancelledError("enough"));
    EXPECT_EQ(frame.body.size(), body.size());  // Still valid.
    EXPECT_EQ(frame.body[9], body[9]);
  };
  for (uint64_t id = 1; id <= 5; ++id) {
    ASSERT_TRUE(pair_->client().Send(client_, Frame(FrameType::kPing, id, body)).ok());
  }
  int reconnects = 0;
  PeerId again = 0;
  client_handler_.on_down = [&](PeerId) {
    if (++reconnects > 1) return;
    const absl::StatusOr<PeerId> peer = pair_->client().Connect(pair_->address(), Options());
    ASSERT_TRUE(peer.ok());
    again = *peer;
  };
  ASSERT_TRUE(Until([&] { return client_handler_.up.size() == 2; }));
  EXPECT_THAT(node_handler_.frames, SizeIs(3));
  EXPECT_NE(again, client_) << "peer ids are never used again";
  EXPECT_EQ(client_handler_.up.back(), again);
}

TEST_P(TransportSuite, CancelInsideOnPayloadDrains) {
  ConnectUp();
  bool can = true;
  client_handler_.on_payload = [&](PeerId peer, const FrameHeader& header) {
    can = pair_->client().Cancel(peer, header.request_id);
  };
  const Bytes bytes = Pattern(100'000, 12);
  const ConstSegment segment{bytes.data(), bytes.size()};
  OutFrame frame = Frame(FrameType::kReadReply, 5);
  frame.payload = absl::MakeConstSpan(&segment, 1);
  ASSERT_TRUE(pair_->node().Send(node_, frame).ok());
  ASSERT_TRUE(pair_->node().Send(node_, Frame(FrameType::kLookupReply, 6)).ok());
  ASSERT_TRUE(Until([&] { return !client_handler_.frames.empty(); }));
  if (!can) GTEST_SKIP() << "this path cannot cancel one request";
  EXPECT_EQ(client_handler_.frames[0].header.request_id, 6u);
  EXPECT_EQ(client_handler_.landing[5][50'000], std::byte{0xee});
}

TEST_P(TransportSuite, RefusedTicketIsToldAndNothingElseIsHandled) {
  ConnectOptions options = Options();
  options.hello.ticket = "bad";
  const absl::StatusOr<PeerId> peer = pair_->client().Connect(pair_->address(), options);
  ASSERT_TRUE(peer.ok());
  ASSERT_TRUE(Until([&] { return client_handler_.down.count(*peer) == 1; }));
  EXPECT_EQ(client_handler_.down[*peer][0].code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(client_handler_.down[*peer][0].message(), "ticket refused");
  EXPECT_THAT(client_handler_.up, IsEmpty());
  EXPECT_THAT(node_handler_.down, IsEmpty());
}

TEST_P(TransportSuite, RefusesAnotherKeyAlgorithmNamingBoth) {
  ConnectOptions options = Options();
  options.hello.key_algorithm = "md5/0";
  const absl::StatusOr<PeerId> peer = pair_->client().Connect(pair_->address(), options);
  ASSERT_TRUE(peer.ok());
  ASSERT_TRUE(Until([&] { return client_handler_.down.count(*peer) == 1; }));
  const std::string message(client_handler_.down[*peer][0].message());
  EXPECT_THAT(message, ::testing::HasSubstr("md5/0"));
  EXPECT_THAT(message, ::testing::HasSubstr(kKeyAlgorithm));
  EXPECT_THAT(node_handler_.hellos, IsEmpty());
}

TEST_P(TransportSuite, F61_RefusesAnotherVersionNamingBoth) {
  ConnectOptions options = Options();
  options.hello.version_min = 7;
  options.hello.version_max = 9;
  const absl::StatusOr<PeerId> peer = pair_->client().Connect(pair_->address(), options);
  ASSERT_TRUE(peer.ok());
  ASSERT_TRUE(Until([&] { return client_handler_.down.count(*peer) == 1; }));
  const std::string message(client_handler_.down[*peer][0].message());
  EXPECT_THAT(message, ::testing::HasSubstr("7 to 9"));
  EXPECT_THAT(message, ::testing::HasSubstr("1 to 2"));
  EXPECT_EQ(client_handler_.down[*peer][0].code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(TransportSuite, PullsFromTheArenaWithTrailer) {
  ConnectUp();
  ASSERT_EQ(pair_->client().Path(client_)->one_sided, GetParam().one_sided);
  Bytes to(100'000);
  const std::vector<Segment> target = {{to.data(), 1}, {to.data() + 1, 40'000}, {to.data() + 40'001, 59'999}};
  PullRequest request{1, RecordingHandler::kArenaRegion, 4096, 100'000, (1 << 20) - 64, target};
  request.next_offset = 3ull << 40;  // Outside: a hint is no read.
  if (!GetParam().one_sided) {
    EXPECT_FALSE(pair_->client().Pull(client_, request).ok());
    return;
  }
  const Bytes bytes = Pattern(100'000, 13);
  std::copy(bytes.begin(), bytes.end(), arena_->data() + 4096);
  SlotTrailer trailer{};
  trailer.generation = 42;
  trailer.length = 100'000;
  std::memcpy(arena_->data() + (1 << 20) - 64, &trailer, sizeof(trailer));
  ASSERT_TRUE(pair_->client().Pull(client_, request).ok());
  ASSERT_TRUE(Until([&] { return client_handler_.pulled.count(1) == 1; }));
  const PullResult& result = client_handler_.pulled[1][0];
  EXPECT_EQ(result.result, PartResult::kOk);
  EXPECT_EQ(to, bytes);
  EXPECT_EQ(result.crc, Crc32c(bytes.data(), bytes.size()));
  EXPECT_EQ(result.trailer.generation, 42u);
  EXPECT_EQ(result.trailer.length, 100'000u);
}

TEST_P(TransportSuite, PullsFromThePutWindow) {
  ConnectUp();
  if (!GetParam().one_sided) {
    EXPECT_EQ(node_handler_.hellos[0].window_bytes, 0u);
    return;
  }
  EXPECT_EQ(node_handler_.hellos[0].window_bytes, window_->bytes());
  const Bytes bytes = Pattern(70'000, 14);
  std::copy(bytes.begin(), bytes.end(), window_->data() + 1000);
  Bytes to(70'000);
  const Segment target{to.data(), to.size()};
  PullRequest request{8, kPutWindowRegion, 1000, 70'000, 0, absl::MakeConstSpan(&target, 1)};
  ASSERT_TRUE(pair_->node().Pull(node_, request).ok());
  ASSERT_TRUE(Until([&] { return node_handler_.pulled.count(8) == 1; }));
  EXPECT_EQ(node_handler_.pulled[8][0].result, PartResult::kOk);
  EXPECT_EQ(node_handler_.pulled[8][0].crc, Crc32c(bytes.data(), bytes.size()));
  EXPECT_EQ(to, bytes);
}

TEST_P(TransportSuite, S06_RefusesAPullOneByteOutsideTheRegion) {
  if (!GetParam().one_sided) return;
  ConnectUp();
  Bytes to(100, std::byte{0x11});
  const Segment target{to.data(), to.size()};
  const uint64_t size = 1 << 20;
  const std::vector<std::pair<uint64_t, uint64_t>> bad = {
      {size - 99, 0},         {size, 0}, {UINT64_MAX, 0},     {UINT64_MAX - 99, 0},
      {uint64_t{1} << 32, 0},  // F36
      {0, size - 63},         {0, size}, {0, UINT64_MAX - 7}, {0, 12}};
  uint64_t pull = 1;
  for (const auto& [offset, trailer] : bad) {
    PullRequest request{pull,    RecordingHandler::kArenaRegion, offset, 100,
                        trailer, absl::MakeConstSpan(&target, 1)};
    ASSERT_TRUE(pair_->client().Pull(client_, request).ok());
    ASSERT_TRUE(Until([&] { return client_handler_.pulled.count(pull) == 1; }));
    EXPECT_EQ(client_handler_.pulled[pull][0].result, PartResult::kInvalid) << offset << " " << trailer;
    ++pull;
  }
  PullRequest other{pull, RecordingHandler::kArenaRegion + 1, 0, 100, 0, absl::MakeConstSpan(&target, 1)};
  ASSERT_TRUE(pair_->client().Pull(client_, other).ok());
  ASSERT_TRUE(Until([&] { return client_handler_.pulled.count(pull) == 1; }));
  EXPECT_EQ(client_handler_.pulled[pull][0].result, PartResult::kInvalid);
  EXPECT_TRUE(std::all_of(to.begin(), to.end(), [](std::byte b) { return b == std::byte{0x11}; }));
}

TEST_P(TransportSuite, MalformedAddressesAreRefusedAtOnce) {
  for (const char* address : {"", "tcp", "tcp:", "udp:127.0.0.1:1", "unix:"}) {
    EXPECT_EQ(pair_->client().Connect(address, Options()).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
}

}  // namespace
}  // namespace cistern
