#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/crc32c.h"
#include "transport/loopback_test_fixture.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(LoopbackTest, CarriesFramesInOrderWithTheirPayloads) {
  const PeerId peer = ConnectUp();
  Bytes payload(100'000);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7);
  const Bytes none;
  for (uint64_t id = 1; id <= 20; ++id) {
    const Bytes& bytes = id == 20 ? payload : none;  // Borrowed until it is sent.
    ASSERT_TRUE(SendTo(client_, peer, id, bytes, id).ok());
  }
  Run();
  ASSERT_THAT(node_handler_.frames, SizeIs(20));
  for (uint64_t id = 1; id <= 20; ++id) EXPECT_EQ(node_handler_.frames[id - 1].header.request_id, id);
  EXPECT_EQ(node_handler_.landing, payload);
  EXPECT_THAT(node_handler_.frames[19].crcs, ElementsAre(Crc32c(payload.data(), payload.size())));
  EXPECT_THAT(client_handler_.sent, ElementsAre(20));
}

TEST_F(LoopbackTest, RefusesAPeerWithTheHandlersReason) {
  ConnectOptions options = Options();
  options.hello.ticket = "bad";
  const PeerId peer = *client_.Connect("sim:node/0", options);
  Run();
  ASSERT_THAT(client_handler_.down[peer], SizeIs(1));
  EXPECT_EQ(client_handler_.down[peer][0].code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(client_handler_.down[peer][0].message()), HasSubstr("ticket refused"));
  EXPECT_THAT(node_handler_.down, IsEmpty());  // Never up there, so never down.
}

TEST_F(LoopbackTest, F61_RefusesOtherVersionsAndAlgorithmsWithBothValues) {
  ConnectOptions options = Options();
  options.hello.version_min = options.hello.version_max = 99;
  const PeerId old = *client_.Connect("sim:node/0", options);
  options = Options();
  options.hello.key_algorithm = "md5";
  const PeerId other = *client_.Connect("sim:node/0", options);
  Run();
  EXPECT_THAT(std::string(client_handler_.down[old].at(0).message()), HasSubstr("99"));
  EXPECT_THAT(std::string(client_handler_.down[other].at(0).message()), HasSubstr("md5"));
  EXPECT_THAT(std::string(client_handler_.down[other].at(0).message()), HasSubstr(kKeyAlgorithm));
  EXPECT_THAT(node_handler_.accepted, IsEmpty());
}

TEST_F(LoopbackTest, WritesNothingMoreAfterACancelInTheMiddle) {
  const PeerId peer = ConnectUp();
  ASSERT_TRUE(SendTo(client_, peer, 1, {}).ok());
  Run(kSecond);
  const PeerId back = node_handler_.frames.at(0).peer;
  const Bytes payload(40'000, std::byte{1});
  ASSERT_TRUE(SendTo(*node_, back, 9, payload, 77).ok());
  while (client_handler_.payloads == 0 || client_handler_.landing[0] != std::byte{1}) {
    clock_.Set(network_.NextEventAt());
    client_.Poll();
  }
  EXPECT_TRUE(client_.Cancel(peer, 9));
  const Bytes at_cancel = client_handler_.landing;
  EXPECT_NE(at_cancel, payload);
  Run(kSecond);
  EXPECT_EQ(client_handler_.landing, at_cancel);
  EXPECT_THAT(client_handler_.frames, IsEmpty());
  EXPECT_THAT(node_handler_.sent, ElementsAre(77));  // The sender is free of it all the same.
  ASSERT_TRUE(SendTo(*node_, back, 10, {}).ok());    // And the connection goes on.
  Run();
  EXPECT_THAT(client_handler_.frames, SizeIs(1));
}

TEST_F(LoopbackTest, DropsAReplyThatWasCancelledBeforeItBegan) {
  const PeerId peer = ConnectUp();
  ASSERT_TRUE(SendTo(client_, peer, 1, {}).ok());
  Run(kSecond);
  EXPECT_TRUE(client_.Cancel(peer, 4));
  ASSERT_TRUE(SendTo(*node_, node_handler_.frames.at(0).peer, 4, payload_).ok());
  Run();
  EXPECT_EQ(client_handler_.payloads, 0);
  EXPECT_THAT(client_handler_.frames, IsEmpty());
}

TEST_F(LoopbackTest, FenceTellsBothSidesOnceAndStopsAllBytes) {
  const PeerId peer = ConnectUp();
  Bytes payload(40'000, std::byte{1});
  ASSERT_TRUE(SendTo(client_, peer, 1, payload, 5).ok());
  clock_.Set(network_.NextEventAt());
  client_.Fence(peer, absl::CancelledError("enough"));
  ASSERT_THAT(client_handler_.down[peer], SizeIs(1));
  std::fill(payload.begin(), payload.end(), std::byte{9});  // Ours again.
  Run();
  EXPECT_THAT(client_handler_.down[peer], SizeIs(1));
  EXPECT_THAT(client_handler_.sent, IsEmpty());
  EXPECT_THAT(node_handler_.frames, IsEmpty());
  EXPECT_THAT(node_handler_.down, SizeIs(1));
  EXPECT_THAT(node_handler_.landing, ::testing::Not(::testing::Contains(std::byte{9})));
  EXPECT_EQ(client_.Send(peer, {}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(client_.Path(peer), nullptr);
}

TEST_F(LoopbackTest, ClosesThePeerWhenThePlanDoesNotFitThePayload) {
  const PeerId peer = ConnectUp();
  node_handler_.short_plan = 1;
  ASSERT_TRUE(SendTo(client_, peer, 1, payload_).ok());
  Run();
  EXPECT_THAT(node_handler_.down, SizeIs(1));
  EXPECT_THAT(client_handler_.down[peer], SizeIs(1));
}

TEST_F(LoopbackTest, DrainsAPayloadTheHandlerRefuses) {
  const PeerId peer = ConnectUp();
  node_handler_.refuse_payload = true;
  ASSERT_TRUE(SendTo(client_, peer, 1, payload_, 3).ok());
  ASSERT_TRUE(SendTo(client_, peer, 2, {}).ok());
  Run();
  ASSERT_THAT(node_handler_.frames, SizeIs(1));
  EXPECT_EQ(node_handler_.frames[0].header.request_id, 2u);
}

TEST_F(LoopbackTest, PullReadsTheRegionWhenItArrivesAndTheTrailerLast) {
  MemoryRegion region = *MemoryRegion::Create("arena", 8192, true);
  node_handler_.region = &region;
  const PeerId peer = ConnectUp();
  std::memset(region.data(), 1, 4096);
  SlotTrailer trailer{};
  trailer.generation = 2;
  std::memcpy(region.data() + 4096, &trailer, sizeof trailer);
  Bytes target(1000);
  const Segment segment{target.data(), target.size()};
  PullRequest pull{1, 5, 100, 1000, 4096, absl::MakeConstSpan(&segment, 1)};
  ASSERT_TRUE(client_.Pull(peer, pull).ok());
  clock_.Set(network_.NextEventAt());
  network_.Route();                     // The first half is read,
  std::memset(region.data(), 2, 4096);  // the slot is written anew,
  Run();                                // and the second half and the trailer show it.
  ASSERT_THAT(client_handler_.pulled[1], SizeIs(1));
  EXPECT_EQ(target[0], std::byte{1});
  EXPECT_EQ(target[999], std::byte{2});
  EXPECT_EQ(client_handler_.pulled[1][0].trailer.generation, 2u);
  EXPECT_EQ(client_handler_.pulled[1][0].crc, Crc32c(target.data(), target.size()));
}

TEST_F(LoopbackTest, F36_PullOutsideTheRegionIsInvalid) {
  MemoryRegion region = *MemoryRegion::Create("arena", 8192, true);
  node_handler_.region = &region;
  const PeerId peer = ConnectUp();
  Bytes target(1000);
  const Segment segment{target.data(), target.size()};
  const uint64_t offsets[] = {7193, 8192, uint64_t{1} << 32, ~uint64_t{0} - 10};
  for (size_t i = 0; i < 4; ++i) {
    PullRequest pull{i, 5, offsets[i], 1000, 0, absl::MakeConstSpan(&segment, 1)};
    ASSERT_TRUE(client_.Pull(peer, pull).ok());
  }
  ASSERT_TRUE(
      client_.Pull(peer, {4, 6, 0, 1000, 0, absl::MakeConstSpan(&segment, 1)}).ok());  // No such region.
  Run();
  for (uint64_t i = 0; i < 5; ++i)
    EXPECT_EQ(client_handler_.pulled[i].at(0).result, PartResult::kInvalid) << i;
}

}  // namespace
}  // namespace cistern
