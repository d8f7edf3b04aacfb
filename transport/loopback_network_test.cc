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

TEST_F(LoopbackTest, AnswersUnknownNamesWithADownPeer) {
  const PeerId peer = *client_.Connect("sim:nobody/0", Options());
  EXPECT_FALSE(client_.Connect("nonsense", Options()).ok());
  Run();
  ASSERT_THAT(client_handler_.down[peer], SizeIs(1));
  EXPECT_EQ(client_handler_.down[peer][0].code(), absl::StatusCode::kUnavailable);
}

TEST_F(LoopbackTest, EndsAHandshakeBehindACutByItsDeadline) {
  network_.Partition("client", "node");
  const Nanos begin = clock_.Now();
  const PeerId peer = *client_.Connect("sim:node/0", Options());
  Run(3 * kSecond);
  ASSERT_THAT(client_handler_.down[peer], SizeIs(1));
  EXPECT_EQ(client_handler_.down[peer][0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(clock_.Now() - begin, kHandshakeDeadline);
}

TEST_F(LoopbackTest, HoldsFramesBehindACutAndDeliversThemInOrderAfterIt) {
  const PeerId peer = ConnectUp();
  network_.PartitionOneWay("client", "node");
  for (uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(SendTo(client_, peer, id, {}).ok());
  Run(kSecond);
  EXPECT_THAT(node_handler_.frames, IsEmpty());
  network_.HealAll();
  ASSERT_TRUE(SendTo(client_, peer, 6, {}).ok());
  Run();
  ASSERT_THAT(node_handler_.frames, SizeIs(6));
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(node_handler_.frames[id - 1].header.request_id, id);
}

// Nothing overtakes what a cut held back, least of all the rest of the same payload or the second half of a
// pull: it would look like damage on a connection that knows none.
TEST_F(LoopbackTest, KeepsTheOrderWhereACutFallsIntoTheMiddleOfWhatIsUnderWay) {
  const PeerId peer = ConnectUp();
  LinkFaults slow;
  slow.delay_max = slow.chunk_max = 10 * kMillisecond;
  network_.SetFaults("client", "node", slow);
  Bytes payload(4000);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i / 7);
  const uint32_t crc = Crc32c(payload.data(), payload.size());
  uint64_t id = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(SendTo(client_, peer, ++id, payload).ok());
    Run((1 + round % 20) * kMillisecond);
    network_.PartitionOneWay("client", "node");
    Run((1 + round % 7) * kMillisecond);
    network_.HealAll();
    if (round % 2 == 0) Run(kSecond);
  }
  Run();
  ASSERT_THAT(node_handler_.frames, SizeIs(id));
  for (uint64_t i = 0; i < id; ++i) {
    EXPECT_EQ(node_handler_.frames[i].header.request_id, i + 1);
    EXPECT_THAT(node_handler_.frames[i].crcs, ElementsAre(crc)) << "frame " << i;
  }
}

TEST_F(LoopbackTest, CatchesFlippedBitsInHeadersAndBodies) {
  LinkFaults faults;
  faults.flip_body = 1;
  for (int round = 0; round < 50; ++round) {
    network_.ClearFaults();
    const PeerId peer = ConnectUp();
    network_.SetFaults("client", "node", faults);
    const size_t before = node_handler_.frames.size();
    ASSERT_TRUE(SendTo(client_, peer, 1, {}).ok());
    Run(kSecond);
    EXPECT_EQ(node_handler_.frames.size(), before);
    EXPECT_THAT(client_handler_.down[peer], SizeIs(1));
  }
}

TEST_F(LoopbackTest, ReportsTheCrcOfWhatLandedWhenAPayloadBitFlips) {
  const PeerId peer = ConnectUp();
  LinkFaults faults;
  faults.flip_payload = 1;
  network_.SetFaults("client", "node", faults);
  const Bytes payload(5000, std::byte{3});
  ASSERT_TRUE(SendTo(client_, peer, 1, payload).ok());
  Run();
  ASSERT_THAT(node_handler_.frames, SizeIs(1));
  EXPECT_NE(node_handler_.landing, payload);
  EXPECT_EQ(node_handler_.frames[0].crcs.at(0), Crc32c(node_handler_.landing.data(), payload.size()));
}

TEST_F(LoopbackTest, PullFromASilentlyDeadHostStillSucceedsUntilTheResetIsHeard) {
  auto region = std::make_unique<MemoryRegion>(*MemoryRegion::Create("arena", 8192, true));
  std::memset(region->data(), 4, 8192);
  node_handler_.region = region.get();
  const PeerId peer = ConnectUp();
  network_.CrashHost("node", LoopbackNetwork::Crash::kSilent);
  node_.reset();
  region.reset();
  Bytes target(10);
  const Segment segment{target.data(), target.size()};
  ASSERT_TRUE(client_.Pull(peer, {1, 5, 0, 10, 0, absl::MakeConstSpan(&segment, 1)}).ok());
  Run(kSecond);
  ASSERT_THAT(client_handler_.pulled[1], SizeIs(1));
  EXPECT_EQ(target[9], std::byte{4});
  EXPECT_THAT(client_handler_.down, IsEmpty());
}

TEST_F(LoopbackTest, CrashWithResetIsHeardAndTheNameIsFreeForTheNextProcess) {
  const PeerId peer = ConnectUp();
  network_.CrashHost("node", LoopbackNetwork::Crash::kReset);
  node_ =
      std::make_unique<LoopbackTransport>(network_, LoopbackOptions{.host = "node", .listen = {"node/0"}});
  Recorder fresh;
  node_->SetHandler(&fresh);
  Run(kSecond);
  EXPECT_THAT(client_handler_.down[peer], SizeIs(1));
  EXPECT_THAT(node_handler_.down, IsEmpty());  // The dead process hears nothing.
  const PeerId again = *client_.Connect("sim:node/0", Options());
  Run();
  EXPECT_THAT(client_handler_.up, ElementsAre(peer, again));
  EXPECT_THAT(fresh.accepted, SizeIs(1));
}

TEST_F(LoopbackTest, BoundsWhatWaitsToBeSent) {
  const PeerId peer = ConnectUp();
  network_.Partition("client", "node");
  size_t queued = 0;
  while (SendTo(client_, peer, queued + 1, {}).ok()) {
    ++queued;
    ASSERT_LE(queued, kSendQueueFramesMax);
  }
  EXPECT_EQ(queued, kSendQueueFramesMax);
  network_.HealAll();
  Run();
  EXPECT_THAT(node_handler_.frames, SizeIs(queued));
  EXPECT_TRUE(SendTo(client_, peer, 1, {}).ok());
}

TEST_F(LoopbackTest, SameSeedSameHistory) {
  std::vector<std::string> histories;
  for (int round = 0; round < 2; ++round) {
    SimClock clock;
    LoopbackNetwork network(clock, 7);
    std::string history;
    network.SetObserver([&](const LoopbackEvent& event) {
      history += std::to_string(event.at) + std::string(event.what) + std::to_string(event.id) + "\n";
    });
    Recorder a, b;
    LoopbackTransport client(network, {.host = "a", .listen = {}});
    LoopbackTransport node(network, {.host = "b", .listen = {"b/0"}});
    client.SetHandler(&a);
    node.SetHandler(&b);
    const PeerId peer = *client.Connect("sim:b/0", Options());
    for (int i = 0; network.NextEventAt() != kNever; ++i) {
      clock.Set(std::max(network.NextEventAt(), clock.Now()));
      client.Poll();
      node.Poll();
      if (i < 50 && client.Path(peer) != nullptr) (void)SendTo(client, peer, i, {});
    }
    histories.push_back(history);
  }
  EXPECT_GT(histories[0].size(), 100u);
  EXPECT_EQ(histories[0], histories[1]);
}

}  // namespace
}  // namespace cistern
