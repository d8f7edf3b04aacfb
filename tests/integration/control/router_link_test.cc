#include "client/control/router_link.h"

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cache_node/registrar.h"
#include "router/service_fixture.h"

namespace cistern {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

struct Heard {
  std::vector<ClusterMap> maps;
  std::vector<TicketGrant> tickets;
};

RouterLinkOptions Options(const std::string& router) {
  RouterLinkOptions options;
  options.router = router;
  options.backoff_min = 5 * kMillisecond;
  options.backoff_max = 50 * kMillisecond;
  options.seed = 11;
  return options;
}

RouterLinkCallbacks Into(Watched<Heard>& heard) {
  return {
      .on_map = [&heard](const ClusterMap& map) { heard.Change([&](Heard& h) { h.maps.push_back(map); }); },
      .on_ticket =
          [&heard](const TicketGrant& t) { heard.Change([&](Heard& h) { h.tickets.push_back(t); }); }};
}

class RouterLinkTest : public ServiceFixture {
 protected:
  void SetUp() override { StartRouter(); }
  // A node joins and stays.
  void Join(const std::string& id) {
    RegistrarOptions options;
    options.router = address();
    options.node_id = id;
    options.key = key_;
    options.shards = {{"127.0.0.1:4000", "", ""}};
    options.backoff_max = 50 * kMillisecond;
    RegistrarCallbacks callbacks;
    callbacks.report = [] {
      NodeReport report;
      report.stats.hit_blocks = 42;
      return report;
    };
    nodes_.push_back(std::make_unique<Registrar>(options, callbacks));
    nodes_.back()->Start();
    ASSERT_TRUE(nodes_.back()->WaitRegistered(kTestPatience).ok());
  }
  std::vector<std::unique_ptr<Registrar>> nodes_;
};

// A port that takes connections, counts them, and hangs up at once or never says a word.
class BareListener {
 public:
  enum Manner { kHangUp, kSilent };
  explicit BareListener(Manner manner) : manner_(manner) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(fd_, 128), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~BareListener() { Stop(); }
  void Stop() {
    if (!thread_.joinable()) return;
    stop_ = true;
    ::shutdown(fd_, SHUT_RDWR);  // Wakes accept.
    thread_.join();
    ::close(fd_);
    for (const int fd : kept_) ::close(fd);
  }
  const std::string& address() const { return address_; }
  Watched<uint64_t>& accepted() { return accepted_; }

 private:
  void Run() {
    while (!stop_) {
      const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      if (manner_ == kHangUp) {
        // An orderly end on both sides leaves the port free for a router that comes later.
        const linger now{1, 0};
        ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        ::close(fd);
      } else {
        kept_.push_back(fd);
      }
      accepted_.Change([](uint64_t& n) { ++n; });
    }
  }
  const Manner manner_;
  int fd_ = -1;
  std::string address_;
  std::atomic<bool> stop_{false};
  std::vector<int> kept_;
  Watched<uint64_t> accepted_;
  std::thread thread_;
};

TEST_F(RouterLinkTest, BringsMapAndTicketAndFollows) {
  Watched<Heard> heard;
  RouterLink link(Options(address()), Into(heard));
  ASSERT_TRUE(link.WaitReady(kTestPatience).ok());
  const TicketGrant grant = link.ticket().value();
  EXPECT_EQ(grant.cluster, cluster_);
  EXPECT_TRUE(OpenTicket(grant.sealed, key_, cluster_, grant.expires_unix_s - 10).ok());
  Join("node-1");
  EXPECT_TRUE(
      heard.WaitUntil([](const Heard& h) { return !h.maps.empty() && h.maps.back().nodes.size() == 1; }));
  EXPECT_EQ(link.map()->nodes[0].id, "node-1");
  EXPECT_TRUE(link.connected());
  EXPECT_EQ(link.connects(), 1u);
  EXPECT_EQ(heard.Get().tickets.size(), 1u);
}

TEST_F(RouterLinkTest, StatusTellsNodesAndFigures) {
  Join("node-1");
  ClusterStatus status;
  const Nanos until = clock_.Now() + kTestPatience;
  while (clock_.Now() < until) {  // The figures come with the first heartbeat.
    status = FetchClusterStatus(address(), kTestPatience).value();
    ASSERT_EQ(status.nodes.size(), 1u);
    if (status.nodes[0].stats.hit_blocks == 42) break;
  }
  EXPECT_EQ(status.nodes[0].stats.hit_blocks, 42u);
  EXPECT_EQ(status.router_id, "router-1");
  EXPECT_EQ(status.address, address());
  EXPECT_EQ(status.counters.at("registrations_total"), 1u);
}

TEST_F(RouterLinkTest, WithoutARouterTheErrorIsOneLineThatHelps) {
  StopRouter();
  Watched<Heard> heard;
  RouterLink link(Options(address()), Into(heard));
  for (const absl::Status& status :
       {link.WaitReady(100 * kMillisecond), link.GetStatus(kTestPatience).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr(address()));
    EXPECT_THAT(std::string(status.message()), HasSubstr("cistern up"));
    // The library reads no variable and has no flags: that is the business of who calls it.
    EXPECT_THAT(std::string(status.message()), Not(AnyOf(HasSubstr("CISTERN_"), HasSubstr("--"))));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  }
  EXPECT_FALSE(link.map().has_value());
  StartRouter();
  EXPECT_TRUE(link.WaitReady(kTestPatience).ok());  // It had gone on trying.
}

TEST_F(RouterLinkTest, WhatPatienceDoesNotCureIsToldAtOnce) {
  Watched<Heard> heard;
  RouterLinkOptions options = Options(address());
  options.tenant = "nobody";
  RouterLink unknown(options, Into(heard));
  const absl::Status status = unknown.WaitReady(kTestPatience);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nobody"));
  RouterLink malformed(Options("nowhere"), Into(heard));
  EXPECT_EQ(malformed.WaitReady(kTestPatience).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(malformed.connect_attempts(), 0u);
  EXPECT_EQ(FetchClusterStatus("nowhere", kSecond).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RouterLinkTest, KeepsWhatItKnowsWhileTheRouterIsAwayAndFollowsItsReturn) {
  Join("node-1");
  Watched<Heard> heard;
  RouterLink link(Options(address()), Into(heard));
  ASSERT_TRUE(link.WaitReady(kTestPatience).ok());
  const ClusterMap before = link.map().value();
  StopRouter();
  const uint64_t attempts = link.connect_attempts();
  const Nanos until = clock_.Now() + kTestPatience;
  while (link.connect_attempts() < attempts + 3 && clock_.Now() < until) std::this_thread::yield();
  EXPECT_FALSE(link.connected());
  EXPECT_EQ(link.map().value(), before);
  EXPECT_TRUE(link.ticket().has_value());
  StartRouter();
  Join("node-2");
  EXPECT_TRUE(heard.WaitUntil([](const Heard& h) { return h.maps.back().nodes.size() == 2; }));
  EXPECT_EQ(heard.Get().tickets.size(), 1u);  // The old one still holds.
}

TEST_F(RouterLinkTest, TakesTheMapAndATicketOfARouterThatBeganAnew) {
  Join("node-1");
  Watched<Heard> heard;
  RouterLink link(Options(address()), Into(heard));
  ASSERT_TRUE(link.WaitReady(kTestPatience).ok());
  const uint64_t old_epoch = link.map()->epoch;
  const ClusterId old_cluster = cluster_;
  nodes_.clear();
  StopRouter();
  store_ = MemoryStateStore();
  StartRouter();
  ASSERT_NE(cluster_, old_cluster);
  EXPECT_TRUE(heard.WaitUntil([this](const Heard& h) { return h.tickets.back().cluster == cluster_; }));
  EXPECT_LT(link.map()->epoch, old_epoch);
}

TEST_F(RouterLinkTest, RenewsItsTicketLongBeforeItEnds) {
  StopRouter();
  RouterConfig config;
  config.ticket_life_seconds = 1;
  ServiceOptions service;
  service.watch_keep_alive = 10 * kMillisecond;
  StartRouter(service, config);
  RouterLinkOptions options = Options(address());
  options.renew_min = kMillisecond;
  Watched<Heard> heard;
  RouterLink link(options, Into(heard));
  EXPECT_TRUE(heard.WaitUntil([](const Heard& h) { return h.tickets.size() >= 2; }));
  EXPECT_EQ(link.connects(), 1u);  // Over the same connection.
}

TEST_F(RouterLinkTest, RenewsATicketThatIsRefused) {
  StopRouter();
  ServiceOptions service;
  service.watch_keep_alive = 10 * kMillisecond;
  StartRouter(service, {});
  RouterLinkOptions options = Options(address());
  options.renew_min = kMillisecond;
  Watched<Heard> heard;
  RouterLink link(options, Into(heard));
  ASSERT_TRUE(heard.WaitUntil([](const Heard& h) { return h.tickets.size() == 1; }));
  link.RenewTicket();
  EXPECT_TRUE(heard.WaitUntil([](const Heard& h) { return h.tickets.size() == 2; }));
}

TEST_F(RouterLinkTest, F26_ManyWaitersMakeOneAttemptAtATimeWithBackoff) {
  StopRouter();
  auto down = std::make_unique<BareListener>(BareListener::kHangUp);
  listen_ = down->address();
  RouterLinkOptions options = Options(down->address());
  options.backoff_min = 10 * kMillisecond;
  options.backoff_max = 80 * kMillisecond;
  Watched<Heard> heard;
  const Nanos begin = clock_.Now();
  RouterLink link(options, Into(heard));
  std::atomic<int> ready{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 32; ++i) {
    waiters.emplace_back([&] { ready += link.WaitReady(kTestPatience).ok(); });
  }
  EXPECT_TRUE(down->accepted().WaitUntil([](uint64_t n) { return n >= 10; }));
  const Nanos elapsed = clock_.Now() - begin;
  const uint64_t connections = down->accepted().Get();
  EXPECT_LE(connections, link.connect_attempts());  // Nothing connects but the link's own attempts.
  // Steps of 10, 20, 40 and then 80 ms, at least half of each waited.
  EXPECT_LE(connections, 4 + static_cast<uint64_t>(elapsed / (40 * kMillisecond)));
  down->Stop();
  StartRouter();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(ready, 32);
  EXPECT_EQ(link.connects(), 1u);
  EXPECT_EQ(heard.Get().tickets.size(), 1u);
}

TEST_F(RouterLinkTest, ARouterThatTakesConnectionsAndSaysNothingHoldsNobodyUp) {
  BareListener silent(BareListener::kSilent);
  Watched<Heard> heard;
  const Nanos begin = clock_.Now();
  {
    RouterLink link(Options(silent.address()), Into(heard));
    EXPECT_TRUE(silent.accepted().WaitUntil([](uint64_t n) { return n >= 1; }));
    EXPECT_EQ(link.WaitReady(100 * kMillisecond).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(link.GetStatus(100 * kMillisecond).status().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_LT(clock_.Now() - begin, kTestPatience / 2);
}

TEST_F(RouterLinkTest, F32_TheRouterIsToldOfNodesThatWereFoundDead) {
  Join("node-1");
  Watched<Heard> heard;
  RouterLink link(Options(address()), Into(heard));
  ASSERT_TRUE(link.WaitReady(kTestPatience).ok());
  ASSERT_TRUE(
      heard.WaitUntil([](const Heard& h) { return !h.maps.empty() && h.maps.back().nodes.size() == 1; }));
  const uint64_t incarnation = link.map()->nodes[0].incarnation;
  // One report is out at a time; what is told meanwhile goes along once. Nobody waits.
  const std::vector<GonePeer> gone = {{"node-1", incarnation}, {"node-7", 3}};
  const Nanos until = clock_.Now() + kTestPatience;
  while (link.gone_reported() < 4 && clock_.Now() < until) link.ReportGone(gone);
  EXPECT_GE(link.gone_reported(), 4u);
  EXPECT_EQ(link.gone_dropped(), 0u);
  const ClusterStatus status = link.GetStatus(kTestPatience).value();
  EXPECT_GE(status.counters.at("peer_hints_taken_total"), 2u);
  EXPECT_GE(status.counters.at("peer_hints_stale_total"), 2u);
  EXPECT_EQ(status.map.nodes[0].state, NodeState::kActive) << "its heartbeats come";
  StopRouter();
  while (link.connected() && clock_.Now() < until) std::this_thread::yield();
  while (link.gone_dropped() == 0 && clock_.Now() < until) link.ReportGone(gone);
  EXPECT_GT(link.gone_dropped(), 0u);
}

// The last owner of a connection joins gRPC's threads, so the callback of a report must never be it.
TEST_F(RouterLinkTest, ALinkMayGoWhileAReportIsOut) {
  Join("node-1");
  for (int i = 0; i < 20; ++i) {
    Watched<Heard> heard;
    RouterLink link(Options(address()), Into(heard));
    ASSERT_TRUE(link.WaitReady(kTestPatience).ok());
    ASSERT_TRUE(heard.WaitUntil([](const Heard& h) { return !h.maps.empty(); }));
    link.ReportGone({{"node-1", 77}});
  }
}

TEST_F(RouterLinkTest, AToolIsToldAtOnceThatNobodyListens) {
  StopRouter();
  Watched<Heard> heard;
  RouterLinkOptions options = Options(address());
  options.first_refusal_ends = true;
  RouterLink link(options, Into(heard));
  const Nanos begin = clock_.Now();
  const absl::Status status = link.WaitReady(kTestPatience);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address()));
  EXPECT_LT(clock_.Now() - begin, kTestPatience / 2);
}

// A real router process, which can be stopped as none in this process could.
class RouterProcess {
 public:
  explicit RouterProcess(const ClusterKey& key) {
    std::string name = (std::filesystem::temp_directory_path() / "cistern-link-XXXXXX").string();
    dir_ = ::mkdtemp(name.data());
    EXPECT_TRUE(key.Save(dir_ + "/key").ok());
    const std::string address_file = dir_ + "/address";
    const std::string data = dir_ + "/data";
    const std::string key_file = dir_ + "/key";
    const char* arguments[] = {CISTERN_ROUTER_BINARY, "--listen",      "127.0.0.1:0",    "--data-dir",
                               data.c_str(),          "--cluster-key", key_file.c_str(), "--address-file",
                               address_file.c_str(),  "--log-level",   "error",          nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, arguments[0], nullptr, nullptr, const_cast<char**>(arguments), environ),
              0);
    BootClock clock;
    const Nanos until = clock.Now() + kTestPatience;
    while (!std::filesystem::exists(address_file) && clock.Now() < until) std::this_thread::yield();
    std::ifstream(address_file) >> address_;
  }
  ~RouterProcess() {
    Signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(dir_);
  }
  void Signal(int signal) { ::kill(pid_, signal); }
  const std::string& address() const { return address_; }

 private:
  std::string dir_;
  std::string address_;
  pid_t pid_ = -1;
};

TEST_F(RouterLinkTest, AStoppedRouterIsNoticedAndComesBackWithoutHelp) {
  RouterProcess router(key_);
  ASSERT_NE(router.address(), "");
  Watched<Heard> heard;
  RouterLinkOptions options = Options(router.address());
  options.watch_silent_max = 1200 * kMillisecond;
  RouterLink link(options, Into(heard));
  ASSERT_TRUE(link.WaitReady(kTestPatience).ok());
  router.Signal(SIGSTOP);
  const Nanos until = clock_.Now() + kTestPatience;
  while (link.connected() && clock_.Now() < until) std::this_thread::yield();
  EXPECT_FALSE(link.connected());
  EXPECT_TRUE(link.map().has_value());
  router.Signal(SIGCONT);
  while (!link.connected() && clock_.Now() < until) std::this_thread::yield();
  EXPECT_TRUE(link.connected());
}

}  // namespace
}  // namespace cistern
