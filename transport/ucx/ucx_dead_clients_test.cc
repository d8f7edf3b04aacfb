#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <ucs/debug/log_def.h>
#include <ucs/sys/sock.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <random>
#include <thread>

#include "transport/ucx/held_fds.h"
#include "transport/ucx/ucx_test_pair.h"
#include "transport/unique_fd.h"

// Clients that end while they connect, in numbers: what UCX makes of them must not end the node.
namespace cistern {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

ucs_log_func_rc_t Silent(const char*, unsigned, const char*, ucs_log_level_t,
                         const ucs_log_component_config_t*, const char*, va_list) {
  return UCS_LOG_FUNC_RC_STOP;
}

std::unique_ptr<UcxTransport> MakeTransport(Clock& clock, TransportHandler& handler) {
  FabricOptions options;
  options.transports = "tcp";
  auto context = UcxContext::Open(options);
  EXPECT_TRUE(context.ok()) << context.status();
  if (!context.ok()) return nullptr;
  auto transport = UcxTransport::Create(*std::move(context), clock, FabricThreads::kOne);
  EXPECT_TRUE(transport.ok()) << transport.status();
  if (!transport.ok()) return nullptr;
  (*transport)->SetHandler(&handler);
  return *std::move(transport);
}

// What a client sends first, read by a listener that is no UCX. The client is gone afterwards.
std::string RecordRequest() {
  UniqueFd listener, connection;
  listener.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  SimClock clock;
  RecordingHandler handler;
  const auto client = MakeTransport(clock, handler);
  if (client == nullptr) return {};
  const auto peer = client->Connect("ucx:127.0.0.1:" + std::to_string(ntohs(address.sin_port)), {});
  EXPECT_TRUE(peer.ok()) << peer.status();
  connection.Reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  std::string request;
  // UCX sends it in one piece.
  while (request.empty()) {
    client->Poll();
    char data[4096];
    const ssize_t got = recv(connection.get(), data, sizeof(data), 0);
    if (got > 0) request.assign(data, static_cast<size_t>(got));
  }
  return request;
}

// One client that asks for a connection and is gone: at once, or when it has an answer; told by a reset or
// not.
void AskAndGo(uint16_t port, const std::string& request, std::mt19937& random) {
  UniqueFd fd;
  fd.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return;
  const size_t bytes = random() % 8 == 0 ? random() % request.size() : request.size();
  (void)!send(fd.get(), request.data(), bytes, MSG_NOSIGNAL);
  if (random() % 2 == 0) {
    constexpr int kAnswerMs = 5;
    pollfd wait{.fd = fd.get(), .events = POLLIN, .revents = 0};
    (void)::poll(&wait, 1, kAnswerMs);
  }
  const linger reset{.l_onoff = static_cast<int>(random() % 2), .l_linger = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

// As a shard does: looks, and sleeps when there is nothing.
void PollOrSleep(UcxTransport& node) {
  if (node.Poll()) return;
  constexpr int kSleepMs = 1;
  pollfd wait{.fd = node.WaitFd(), .events = POLLIN, .revents = 0};
  if (node.PrepareWait()) (void)::poll(&wait, 1, kSleepMs);
}

TEST(HeldFds, F58_NumbersOfClosedConnectionsStayTakenForAWhile) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int number = fd;
  ASSERT_GE(number, 0);
  ucs_close_fd(&fd);
  EXPECT_EQ(fd, -1);
  EXPECT_NE(fcntl(number, F_GETFD), -1) << "the number is free";
  EXPECT_EQ(send(number, "x", 1, MSG_NOSIGNAL), -1) << "the connection is open";
  for (size_t i = 0; i < kHeldFdsMax; ++i) {
    int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_NE(other, number);
    ucs_close_fd(&other);
  }
  EXPECT_EQ(fcntl(number, F_GETFD), -1) << "the number stays taken for ever";
  EXPECT_LE(HeldFds(), kHeldFdsMax);
}

class UcxDeadClients : public ::testing::TestWithParam<size_t> {};

// Shards of one process, which UCX serves with one thread. Without what held_fds.cc does UCX ends this
// process within some hundred clients: one shard by "tcp_sockcm_ep.c:416", two by "async.c:643".
TEST_P(UcxDeadClients, F58_ShardsOutliveClientsThatGoWhileTheyConnect) {
  constexpr int kClients = 1000;
  const std::string request = RecordRequest();
  ASSERT_FALSE(request.empty());
  SimClock clock;
  RecordingHandler handler;
  std::vector<std::unique_ptr<UcxTransport>> shards;
  std::vector<uint16_t> ports;
  for (size_t i = 0; i < GetParam(); ++i) {
    shards.push_back(MakeTransport(clock, handler));
    ASSERT_NE(shards.back(), nullptr);
    const auto bound = shards.back()->Listen("ucx:127.0.0.1:0");
    ASSERT_TRUE(bound.ok()) << bound.status();
    ports.push_back(static_cast<uint16_t>(std::atoi(bound->substr(bound->rfind(':') + 1).c_str())));
  }
  ucs_log_push_handler(Silent);  // It has several lines on each.
  std::atomic<bool> gone = false;
  const uint32_t seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  std::vector<std::thread> threads;
  for (const auto& shard : shards) {
    threads.emplace_back([&gone, &shard] {
      while (!gone) PollOrSleep(*shard);
    });
  }
  std::mt19937 random(seed);
  for (int i = 0; i < kClients; ++i) AskAndGo(ports[random() % ports.size()], request, random);
  gone = true;
  for (std::thread& thread : threads) thread.join();
  ucs_log_pop_handler();
  uint64_t accepted = 0;
  for (const auto& shard : shards) accepted += shard->counters().at("ucx_accepted_total");
  EXPECT_GT(accepted, uint64_t{kClients} / 100) << "the node did not know what they asked";
  EXPECT_GT(shards[0]->counters().at("ucx_held_fds"), 0u);
}
INSTANTIATE_TEST_SUITE_P(Shards, UcxDeadClients, ::testing::Values(1, 2),
                         [](const auto& shards) { return std::to_string(shards.param); });

}  // namespace
}  // namespace cistern
