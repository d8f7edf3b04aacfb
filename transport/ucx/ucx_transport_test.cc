#include <poll.h>

#include <algorithm>
#include <random>

#include "core/chain.h"
#include "core/crc32c.h"
#include "transport/ucx/rdma_of_this_machine.h"
#include "transport/ucx/ucx_test_pair.h"

// What only UCX has: endpoints that die, reads under way into memory that somebody wants back, registrations.
namespace cistern {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr size_t kArenaBytes = size_t{32} << 20;

class UcxTransportTest : public ::testing::TestWithParam<FabricUnderTest> {
 protected:
  void SetUp() override {
    arena_ = std::make_unique<MemoryRegion>(*MemoryRegion::Create("ucx-arena", kArenaBytes, true));
    for (size_t i = 0; i < kArenaBytes; i += 8) StoreLe<uint64_t>(arena_->data() + i, i * 0x9e3779b97f4a7c15);
    node_handler_.arena = arena_.get();
    pair_ = std::make_unique<UcxPair>(client_handler_, node_handler_, GetParam().transports, GetParam().host,
                                      GetParam().emulated);
    ASSERT_TRUE(pair_->node().AddMemory(arena_->data(), arena_->bytes(), 4 << 20).ok());
  }
  bool IsRdma() const { return GetParam().name == "rc"; }
  ConnectOptions Options() const {
    ConnectOptions options;
    options.hello.key_algorithm = kKeyAlgorithm;
    options.hello.ticket = "good";
    return options;
  }
  template <typename Done>
  bool Until(Done&& done) {
    for (int i = 0; i < 500'000; ++i) {
      if (done()) return true;
      pair_->Step();
    }
    return done();
  }
  void ConnectUp() {
    const size_t ups = client_handler_.up.size();
    const auto peer = pair_->client().Connect(pair_->address(), Options());
    ASSERT_TRUE(peer.ok()) << peer.status();
    client_ = *peer;
    ASSERT_TRUE(Until([&] { return client_handler_.up.size() > ups; }));
  }
  absl::Status Pull(uint64_t id, uint64_t offset, std::byte* to, uint32_t bytes) {
    const Segment target{to, bytes};
    return pair_->client().Pull(
        client_, {id, RecordingHandler::kArenaRegion, offset, bytes, 0, absl::MakeConstSpan(&target, 1)});
  }
  bool IsArena(const std::byte* at, uint64_t offset, size_t bytes) const {
    return std::equal(at, at + bytes, arena_->data() + offset);
  }

  RecordingHandler client_handler_, node_handler_;
  std::unique_ptr<MemoryRegion> arena_;
  std::unique_ptr<UcxPair> pair_;
  PeerId client_ = 0;
};

TEST_P(UcxTransportTest, F28_PathNamesTransportDeviceAndMemory) {
  ConnectUp();
  const PeerPath& path = *pair_->client().Path(client_);
  EXPECT_EQ(path.kind, PathKind::kUcx);
  EXPECT_THAT(path.device, HasSubstr(IsRdma() ? "rc_verbs/" : "tcp/"));
  EXPECT_THAT(path.memory, HasSubstr(IsRdma() ? "by the NIC" : "received by UCX"));
  EXPECT_EQ(path.why, IsRdma() ? "fabric, RDMA" : "fabric, no RDMA on this connection");
  const PeerPath& back = *pair_->node().Path(node_handler_.up[0]);
  EXPECT_EQ(back.device, path.device);
  EXPECT_TRUE(IsFabricPeer(client_));
}

TEST_P(UcxTransportTest, PullsManyPartsIntoOrdinaryAndRegisteredMemory) {
  ConnectUp();
  const auto mine = MemoryRegion::Create("ucx-mine", 8 << 20, false);
  ASSERT_TRUE(mine.ok());
  ASSERT_TRUE(pair_->client().AddMemory(mine->data(), mine->bytes(), 4096).ok());
  Bytes ordinary(8 << 20);
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(Pull(i + 1, i << 20, ordinary.data() + (i << 20), 1 << 20).ok());
    ASSERT_TRUE(Pull(i + 101, (i + 8) << 20, mine->data() + (i << 20), 1 << 20).ok());
  }
  ASSERT_TRUE(Until([&] { return client_handler_.pulled.size() == 16; }));
  EXPECT_TRUE(IsArena(ordinary.data(), 0, 8 << 20));
  EXPECT_TRUE(IsArena(mine->data(), 8 << 20, 8 << 20));
  for (const auto& [id, results] : client_handler_.pulled) {
    ASSERT_THAT(results, SizeIs(1));
    const uint64_t offset = (id > 100 ? id - 101 + 8 : id - 1) << 20;
    EXPECT_EQ(results[0].result, PartResult::kOk);
    EXPECT_EQ(results[0].crc, Crc32c(arena_->data() + offset, 1 << 20));
  }
  const auto counters = pair_->client().counters();
  EXPECT_EQ(counters.at("ucx_direct_get_bytes_total"), 8u << 20);
  EXPECT_EQ(counters.at("ucx_get_bytes_total"), 16u << 20);
  pair_->client().RemoveMemory(mine->data());
}

TEST_P(UcxTransportTest, F25_KilledPeerEndsEachReadOnceAndIsClosedOnce) {
  ConnectUp();
  Bytes to(1000 * 64);
  const size_t before = pair_->client().operations();
  std::map<uint64_t, int> refused;
  const auto post = [&](uint64_t first) {
    for (uint64_t i = first; i < first + 500; ++i) {
      if (!Pull(i, i * 64, to.data() + (i % 1000) * 64, 64).ok()) ++refused[i];
    }
  };
  pair_->KillNode();
  post(1);  // Nobody has told us yet.
  ASSERT_TRUE(Until([&] { return client_handler_.down.count(client_) == 1; }));
  post(501);
  ASSERT_TRUE(Until([&] { return pair_->client().operations() == before; })) << "operations are left over";
  EXPECT_THAT(refused, SizeIs(500)) << "a read was begun on an endpoint that is gone";
  EXPECT_THAT(client_handler_.down[client_], SizeIs(1));
  EXPECT_EQ(pair_->client().counters().at("ucx_forced_closes_total"), 1u);
  for (const auto& [id, results] : client_handler_.pulled) EXPECT_THAT(results, SizeIs(1)) << id;
  EXPECT_EQ(pair_->client().counters().at("ucx_endpoints"), 0u);
}

// At every tenth of the way: the target is the caller's again, and stays untouched whatever still comes.
TEST_P(UcxTransportTest, F30_FenceAtEveryTenthOfAReadWritesNoLaterByte) {
  if (!IsRdma()) GTEST_SKIP() << "an owner that answers gets itself does not outlive its reader (UCX 1.13)";
  const auto mine = MemoryRegion::Create("ucx-mine", 16 << 20, false);
  ASSERT_TRUE(mine.ok());
  ASSERT_TRUE(pair_->client().AddMemory(mine->data(), mine->bytes(), 4096).ok());
  Bytes ordinary(16 << 20);
  for (std::byte* memory : {mine->data(), ordinary.data()}) {
    for (int tenth = 0; tenth < 10; ++tenth) {
      ConnectUp();
      client_handler_.pulled.clear();
      std::fill(memory, memory + (16 << 20), std::byte{0xee});
      for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(Pull(i + 1, i << 20, memory + (i << 20), 1 << 20).ok());
      ASSERT_TRUE(
          Until([&] { return client_handler_.pulled.size() * 10 >= static_cast<size_t>(tenth) * 16; }));
      const size_t done = client_handler_.pulled.size();
      pair_->client().Fence(client_, absl::DeadlineExceededError("test"));
      std::fill(memory, memory + (16 << 20), std::byte{0x11});
      const size_t downs = node_handler_.down.size();
      ASSERT_TRUE(
          Until([&] { return node_handler_.down.size() > downs || downs == node_handler_.up.size(); }));
      for (int i = 0; i < 300; ++i) pair_->Step();
      EXPECT_TRUE(std::all_of(memory, memory + (16 << 20), [](std::byte b) { return b == std::byte{0x11}; }))
          << tenth;
      EXPECT_EQ(client_handler_.pulled.size(), done) << "told after the fence";
      EXPECT_EQ(pair_->client().operations(), 0u);
    }
  }
  pair_->client().RemoveMemory(mine->data());
}

TEST_P(UcxTransportTest, F30_GivesUpOneReadIntoOrdinaryMemoryAndItsSiblingsGoOn) {
  ConnectUp();
  Bytes mine(4 << 20, std::byte{0xee}), other(4 << 20);
  ASSERT_TRUE(Pull(1, 0, mine.data(), 4 << 20).ok());
  ASSERT_TRUE(Pull(2, 4 << 20, other.data(), 4 << 20).ok());
  ASSERT_TRUE(pair_->client().CancelPull(client_, 1));
  std::fill(mine.begin(), mine.end(), std::byte{0x11});
  ASSERT_TRUE(
      Until([&] { return client_handler_.pulled.count(2) == 1 && pair_->client().operations() == 0; }));
  EXPECT_EQ(client_handler_.pulled[2][0].result, PartResult::kOk);
  EXPECT_TRUE(IsArena(other.data(), 4 << 20, 4 << 20));
  EXPECT_EQ(client_handler_.pulled.count(1), 0u);
  EXPECT_TRUE(std::all_of(mine.begin(), mine.end(), [](std::byte b) { return b == std::byte{0x11}; }));
  EXPECT_NE(pair_->client().Path(client_), nullptr);
}

TEST_P(UcxTransportTest, F30_AReadUnderWayIntoRegisteredMemoryNeedsTheFence) {
  if (!IsRdma()) GTEST_SKIP() << "an owner that answers gets itself does not outlive its reader (UCX 1.13)";
  ConnectUp();
  const auto mine = MemoryRegion::Create("ucx-mine", 4 << 20, false);
  ASSERT_TRUE(mine.ok());
  ASSERT_TRUE(pair_->client().AddMemory(mine->data(), mine->bytes(), 4096).ok());
  ASSERT_TRUE(Pull(1, 0, mine->data(), 4 << 20).ok());
  EXPECT_FALSE(pair_->client().CancelPull(client_, 1));
  pair_->client().Fence(client_, absl::DeadlineExceededError("test"));
  pair_->client().RemoveMemory(mine->data());
}

TEST_P(UcxTransportTest, F59_DistinctBuffersRegisterNothing) {
  ConnectUp();
  const size_t bytes = pair_->client().registrations().bytes();
  const uint32_t chunks = pair_->client().registrations().chunks();
  const uint64_t buffers = IsRdma() ? 2000 : 100'000;  // A get over soft-RoCE takes a millisecond.
  Bytes to(buffers * 64);
  uint64_t begun = 0;
  while (begun < buffers) {
    for (int i = 0; i < 200 && begun < buffers; ++i, ++begun) {
      ASSERT_TRUE(Pull(begun + 1, begun * 64 % kArenaBytes, to.data() + begun * 64, 64).ok());
    }
    ASSERT_TRUE(Until([&] { return client_handler_.pulled.size() == begun; }));
  }
  EXPECT_EQ(pair_->client().registrations().bytes(), bytes);
  EXPECT_EQ(pair_->client().registrations().chunks(), chunks);
  EXPECT_TRUE(IsArena(to.data(), 0, to.size()));
}

TEST_P(UcxTransportTest, F24_RestartsUnderLoadEndEveryReadAndOldPeersStayGone) {
  Bytes to(16 << 16);
  for (int restart = 0; restart < (IsRdma() ? 5 : 12); ++restart) {
    ConnectUp();
    const PeerId old = client_;
    client_handler_.pulled.clear();
    for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(Pull(i + 1, i << 16, to.data() + (i << 16), 1 << 16).ok());
    for (int i = 0; i < restart; ++i) pair_->Step();
    pair_->KillNode();
    ASSERT_TRUE(Until([&] { return client_handler_.down.count(old) == 1; }));
    for (const auto& [id, results] : client_handler_.pulled) {
      ASSERT_THAT(results, SizeIs(1));
      EXPECT_TRUE(results[0].result != PartResult::kOk ||
                  IsArena(to.data() + ((id - 1) << 16), (id - 1) << 16, 1 << 16));
    }
    const uint64_t gets = pair_->client().counters().at("ucx_gets_total");
    EXPECT_EQ(Pull(99, 0, to.data(), 64).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(pair_->client().counters().at("ucx_gets_total"), gets) << "the network was touched";
    pair_->ReviveNode();
    ASSERT_TRUE(pair_->node().AddMemory(arena_->data(), arena_->bytes(), 4 << 20).ok());
  }
  ASSERT_TRUE(Until([&] { return pair_->client().operations() == 0; }));
}

TEST_P(UcxTransportTest, F58_ClientsThatDieAtAnyStepLeaveNothingBehind) {
  const auto window = MemoryRegion::Create("ucx-window", 1 << 20, false);
  ASSERT_TRUE(window.ok());
  const size_t bytes = pair_->node().registrations().bytes();
  for (int steps = 0; steps < 40; steps += IsRdma() ? 5 : 1) {
    pair_->ReviveClient();
    ConnectOptions options = Options();
    options.window = &*window;
    ASSERT_TRUE(pair_->client().Connect(pair_->address(), options).ok());
    for (int i = 0; i < steps; ++i) pair_->Step();
    pair_->KillClient();
  }
  ASSERT_TRUE(Until([&] { return pair_->node().counters().at("ucx_endpoints") == 0; }));
  EXPECT_EQ(pair_->node().peer_count(), 0u);
  EXPECT_EQ(pair_->node().operations(), 0u);
  EXPECT_EQ(pair_->node().registrations().bytes(), bytes);
  pair_->ReviveClient();
  ConnectUp();
}

TEST_P(UcxTransportTest, S11_AFailedReadLeavesNothingOfAnotherInItsTarget) {
  ConnectUp();
  Bytes first(1 << 20);
  ASSERT_TRUE(Pull(1, 0, first.data(), 1 << 20).ok());  // Through the bounce buffers, which now hold it.
  ASSERT_TRUE(Until([&] { return client_handler_.pulled.count(1) == 1; }));
  ASSERT_TRUE(IsArena(first.data(), 0, 1 << 20));
  Bytes second(1 << 20, std::byte{0xee});
  pair_->KillNode();
  if (Pull(2, 1 << 20, second.data(), 1 << 20).ok()) {
    ASSERT_TRUE(Until([&] { return client_handler_.down.count(client_) == 1; }));
  }
  for (size_t i = 0; i < second.size();
       ++i) {  // What it was, or its own bytes: never those of the first read.
    ASSERT_TRUE(second[i] == std::byte{0xee} || second[i] == arena_->data()[(1 << 20) + i]) << i;
  }
}

TEST_P(UcxTransportTest, S06_OffersNoMemoryThatTheHandlerDidNot) {
  // Registered, and nobody's business: bounce buffers, and a region that is not this peer's.
  const auto secret = MemoryRegion::Create("ucx-secret", 1 << 20, false);
  ASSERT_TRUE(secret.ok());
  ASSERT_TRUE(pair_->node().AddMemory(secret->data(), secret->bytes(), 4096).ok());
  ConnectUp();
  ASSERT_THAT(client_handler_.last_ack.regions, SizeIs(1));
  EXPECT_EQ(client_handler_.last_ack.regions[0].id, RecordingHandler::kArenaRegion);
  node_handler_.arena = nullptr;  // The next peer may read nothing at all.
  ConnectUp();
  EXPECT_THAT(client_handler_.last_ack.regions, ::testing::IsEmpty());
  EXPECT_FALSE(pair_->client().Path(client_)->one_sided);
  Bytes to(64);
  EXPECT_EQ(Pull(1, 0, to.data(), 64).code(), absl::StatusCode::kFailedPrecondition);
  pair_->node().RemoveMemory(secret->data());
}

TEST_P(UcxTransportTest, WrongAddressIsToldAndPeersAreAcceptedAfterwards) {
  const std::string nobody = "ucx:127.0.0.1:1";
  const auto peer = pair_->client().Connect(nobody, Options());
  ASSERT_TRUE(peer.ok());
  ASSERT_TRUE(Until([&] { return client_handler_.down.count(*peer) == 1; }));
  EXPECT_EQ(client_handler_.down[*peer][0].code(), absl::StatusCode::kUnavailable);
  ConnectUp();
}

TEST_P(UcxTransportTest, ASilentConnectorIsDroppedAtTheDeadline) {
  auto options = Options();
  const auto peer = pair_->client().Connect(pair_->address(), options);
  ASSERT_TRUE(peer.ok());
  // The node never gets to answer: its transport is not polled.
  pair_->clock().Advance(kHandshakeDeadline + kSecond);
  for (int i = 0; i < 100 && client_handler_.down.empty(); ++i) pair_->client().Poll();
  ASSERT_EQ(client_handler_.down.count(*peer), 1u);
  EXPECT_THAT(std::string(client_handler_.down[*peer][0].message()), HasSubstr("no handshake in time"));
}

// A busy owner sees a deadline pass before its timer fires. What fires then must not keep it from sleep for
// ever.
TEST_P(UcxTransportTest, SleepsOnceNoDeadlineIsLeft) {
  ASSERT_TRUE(pair_->client().Connect(pair_->address(), Options()).ok());
  pair_->clock().Advance(kMillisecond);
  ASSERT_TRUE(pair_->client().Connect(pair_->address(), Options()).ok());
  // The node never answers. After the first deadline the timer is set to the second one, a real millisecond
  // on.
  pair_->clock().Advance(kHandshakeDeadline - kMillisecond);
  for (int i = 0; i < 100 && client_handler_.down.empty(); ++i) pair_->client().Poll();
  ASSERT_EQ(client_handler_.down.size(), 1u);
  pair_->clock().Advance(kMillisecond);
  for (int i = 0; i < 100 && client_handler_.down.size() < 2; ++i) pair_->client().Poll();
  ASSERT_EQ(client_handler_.down.size(), 2u);
  bool slept = false;
  for (int i = 0; i < 1000 && !slept;
       ++i) {  // What UCX has to say of the connections it gave up comes first.
    pollfd wait{.fd = pair_->client().WaitFd(), .events = POLLIN, .revents = 0};
    constexpr int kSleepMs = 20;
    slept = pair_->client().PrepareWait() && ::poll(&wait, 1, kSleepMs) == 0;
    pair_->client().Poll();
  }
  EXPECT_TRUE(slept);
}

std::vector<FabricUnderTest> Kinds() {
  std::vector<FabricUnderTest> kinds = {{"tcp_by_gets", "tcp", "127.0.0.1", true, true}};
  AddRc(kinds);
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Ucx, UcxTransportTest, ::testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return kind.param.name; });

// Without RDMA no memory is offered and no key leaves a process: bytes come as payload.
TEST(UcxTransportWithoutRdma, S06_OffersNoMemoryAndTellsWhy) {
  const auto arena = MemoryRegion::Create("ucx-arena", 1 << 20, true);
  const auto window = MemoryRegion::Create("ucx-window", 1 << 20, false);
  ASSERT_TRUE(arena.ok() && window.ok());
  RecordingHandler client_handler, node_handler;
  node_handler.arena = &*arena;
  UcxPair pair(client_handler, node_handler, "tcp");
  ConnectOptions options;
  options.hello.key_algorithm = kKeyAlgorithm;
  options.hello.ticket = "good";
  options.window = &*window;
  const auto peer = pair.client().Connect(pair.address(), options);
  ASSERT_TRUE(peer.ok());
  for (int i = 0; i < 100'000 && client_handler.up.empty(); ++i) pair.Step();
  ASSERT_THAT(client_handler.up, SizeIs(1));
  EXPECT_FALSE(node_handler.hellos[0].wants_map);
  EXPECT_EQ(node_handler.hellos[0].window_bytes, 0u);
  EXPECT_THAT(client_handler.last_ack.regions, ::testing::IsEmpty());
  EXPECT_FALSE(pair.client().Path(*peer)->one_sided);
  EXPECT_EQ(pair.client().Path(*peer)->why, "fabric, no RDMA on this connection");
}

}  // namespace
}  // namespace cistern
