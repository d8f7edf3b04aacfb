#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "router/router_fixture.h"

// Who may have a node's id when a second process wants it.
namespace cistern {
namespace {

using testing::HasSubstr;
constexpr Nanos kBeat = Nanos{kHeartbeatMs} * kMillisecond;

class RouterDuplicates : public RouterFixture {
 protected:
  void SetUp() override { RestartWith({}); }
  void RestartWith(RouterConfig config) {
    config.warn = [this](const std::string& line) { lines_.push_back(line); };
    Restart(config);
  }
  // The same id on another folder, at another address.
  absl::Status Other(uint64_t nonce = 99) {
    RegisterRequest request = Request("node-1", nonce);
    request.place = "other/9:9";
    request.shards[0].tcp = "10.0.0.2:7500";
    return Register(request).status();
  }
  // What the other one hears while it tries for `time` and node-1 beats, or does not.
  absl::Status OtherFor(Nanos time, std::optional<uint64_t> beating, uint64_t nonce = 99) {
    absl::Status last;
    for (Nanos passed = 0; passed < time; passed += kBeat / 5) {
      if (beating.has_value() && passed % kBeat == 0) {
        EXPECT_TRUE(Beat("node-1", *beating).known);
      }
      last = Other(nonce);
      if (last.ok() || absl::IsFailedPrecondition(last)) return last;
      Pass(kBeat / 5);
    }
    return last;
  }
  std::vector<std::string> lines_;
};

TEST_F(RouterDuplicates, ASecondProcessElsewhereIsRefusedWhileTheFirstIsHeard) {
  const Registration first = Register("node-1", 10).value();
  const ClusterMap before = router_->map();
  EXPECT_TRUE(absl::IsUnavailable(Other()));  // It may be dead.
  const absl::Status refused = OtherFor(5 * kSecond, first.incarnation);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  for (const char* part : {"127.0.0.1:4000", "10.0.0.2:7500", "--node-id", "--data-dir"})
    EXPECT_THAT(std::string(refused.message()), HasSubstr(part));
  EXPECT_EQ(router_->map(), before);
  EXPECT_TRUE(Beat("node-1", first.incarnation).known);
  EXPECT_GT(Counter("duplicate_registrations_total"), 2u);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0], refused.message());
  // A supervisor starts it again and again.
  for (uint64_t nonce = 100; nonce < 110; ++nonce)
    EXPECT_TRUE(absl::IsFailedPrecondition(OtherFor(5 * kSecond, first.incarnation, nonce)));
  EXPECT_EQ(lines_.size(), 1u) << "one line a minute";
  EXPECT_EQ(router_->map(), before);
}

TEST_F(RouterDuplicates, AQuickRestartOnItsFolderIsTakenAtOnce) {
  const Registration first = Register("node-1", 10).value();
  Beat("node-1", first.incarnation);
  const auto second = Register("node-1", 11);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_GT(second->incarnation, first.incarnation);
  Restart();  // And the router still knows the folder after its own restart.
  EXPECT_TRUE(Register("node-1", 12).ok());
  EXPECT_EQ(Counter("duplicate_registrations_total"), 0u);
}

TEST_F(RouterDuplicates, ARestartElsewhereIsTakenOnceTheFirstIsSilent) {
  const Registration first = Register("node-1", 10).value();
  Beat("node-1", first.incarnation);
  const Nanos died = clock_.Now();
  EXPECT_TRUE(OtherFor(10 * kSecond, std::nullopt).ok());
  EXPECT_LE(clock_.Now() - died, kNodeSilentMax + kBeat);
  EXPECT_EQ(Node("node-1").shards[0].tcp, "10.0.0.2:7500");
  EXPECT_FALSE(Beat("node-1", first.incarnation).known);  // Were it alive after all: it is told.
  EXPECT_TRUE(absl::IsAborted(Register("node-1", 10).status()));
}

// The last heartbeat of a process that has died may come after the first call of the one that follows it.
TEST_F(RouterDuplicates, AHeartbeatThatWasUnderWayRefusesNobodyForGood) {
  const Registration first = Register("node-1", 10).value();
  EXPECT_TRUE(absl::IsUnavailable(Other()));
  Pass(kBeat - 10 * kMillisecond);
  Beat("node-1", first.incarnation);
  EXPECT_TRUE(OtherFor(10 * kSecond, std::nullopt).ok());
}

TEST_F(RouterDuplicates, OneThatDiesWhileTheOtherWaitsGivesItsPlace) {
  const Registration first = Register("node-1", 10).value();
  EXPECT_TRUE(absl::IsUnavailable(Other()));
  for (int i = 0; i < 4; ++i) {
    Pass(kBeat);
    Beat("node-1", first.incarnation);
  }
  Pass(2 * kBeat + kMillisecond);  // The other one was away; this one has died.
  EXPECT_TRUE(OtherFor(10 * kSecond, std::nullopt).ok());
}

TEST_F(RouterDuplicates, ARestartedRouterGivesTheFirstTimeToCallIn) {
  const Registration first = Register("node-1", 10).value();
  Pass(kSecond);
  Restart();
  EXPECT_TRUE(absl::IsUnavailable(Other()));
  EXPECT_TRUE(absl::IsFailedPrecondition(OtherFor(5 * kSecond, first.incarnation)));
  Restart();
  const Nanos began = clock_.Now();
  EXPECT_TRUE(OtherFor(10 * kSecond, std::nullopt).ok());  // It never came.
  EXPECT_LE(clock_.Now() - began, kNodeSilentMax + kBeat);
}

TEST_F(RouterDuplicates, ARouterThatStoodStillTakesNobodyForSilent) {
  const Registration first = Register("node-1", 10).value();
  clock_.Advance(3600 * kSecond);
  EXPECT_TRUE(absl::IsUnavailable(Other()));
  router_->Tick();
  EXPECT_TRUE(absl::IsUnavailable(Other()));
  EXPECT_TRUE(Beat("node-1", first.incarnation).known);
  Restart();
  clock_.Advance(3600 * kSecond);
  EXPECT_TRUE(absl::IsUnavailable(Other()));
  router_->Tick();
  EXPECT_TRUE(absl::IsUnavailable(Other()));
}

TEST_F(RouterDuplicates, WithoutAPlaceARestartWaitsUntilTheFirstIsSilent) {
  RegisterRequest request = Request("node-1", 10);
  request.place.clear();
  ASSERT_TRUE(Register(request).ok());
  request.boot_nonce = 11;
  EXPECT_TRUE(absl::IsUnavailable(Register(request).status()));
  Pass(kNodeSilentMax);
  EXPECT_TRUE(Register(request).ok());
}

}  // namespace
}  // namespace cistern
