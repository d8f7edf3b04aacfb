#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "proto/metrics_figures.h"
#include "proto/metrics_server.h"

namespace cistern {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string TextOf(const std::vector<prometheus::MetricFamily>& families) {
  std::string all, text = prometheus::TextSerializer().Serialize(families);
  for (size_t at = 0; at < text.size();) {  // Without the help that we do not give.
    const size_t end = text.find('\n', at) + 1;
    if (!text.substr(at, end - at).starts_with("# HELP")) all += text.substr(at, end - at);
    at = end;
  }
  return all;
}

TEST(MetricsFigures, NamesKindsAndLabels) {
  NodeStats stats;
  stats.counters = {{"hit_blocks_total", 12}, {"leases_live", 2}, {"tenant_a-b_used_bytes", 3}};
  stats.cpu_seconds = 1.5;
  stats.tiers = {{.tier = "ram", .used_bytes = 5, .capacity_bytes = 6, .parts = 7},
                 {.tier = "nvme", .used_bytes = 8, .capacity_bytes = 9, .parts = 10}};
  EXPECT_EQ(TextOf(NodeMetrics(stats, {4})),
            "# TYPE cistern_node_hit_blocks_total counter\n"
            "cistern_node_hit_blocks_total 12\n"
            "# TYPE cistern_node_leases_live gauge\n"
            "cistern_node_leases_live 2\n"
            "# TYPE cistern_node_tenant_a_x2db_used_bytes gauge\n"
            "cistern_node_tenant_a_x2db_used_bytes 3\n"
            "# TYPE cistern_node_cpu_seconds_total counter\n"
            "cistern_node_cpu_seconds_total 1.5\n"
            "# TYPE cistern_node_tier_used_bytes gauge\n"
            "cistern_node_tier_used_bytes{tier=\"ram\"} 5\n"
            "cistern_node_tier_used_bytes{tier=\"nvme\"} 8\n"
            "# TYPE cistern_node_tier_capacity_bytes gauge\n"
            "cistern_node_tier_capacity_bytes{tier=\"ram\"} 6\n"
            "cistern_node_tier_capacity_bytes{tier=\"nvme\"} 9\n"
            "# TYPE cistern_node_tier_parts gauge\n"
            "cistern_node_tier_parts{tier=\"ram\"} 7\n"
            "cistern_node_tier_parts{tier=\"nvme\"} 10\n"
            "# TYPE cistern_node_shard_last_poll_ms_ago gauge\n"
            "cistern_node_shard_last_poll_ms_ago{shard=\"0\"} 4\n");
  ClusterStatus status;
  status.map.nodes.resize(3);
  status.map.nodes[0].state = status.map.nodes[2].state = NodeState::kActive;
  status.map.nodes[1].state = NodeState::kGone;
  const std::string router = TextOf(RouterMetrics(status));
  EXPECT_THAT(router, HasSubstr("cistern_router_nodes{state=\"active\"} 2\n"));
  EXPECT_THAT(router, HasSubstr("cistern_router_nodes{state=\"draining\"} 0\n"));
}

std::vector<prometheus::MetricFamily> Source() {
  NodeStats stats;
  stats.counters = {{"hit_blocks_total", 12}};
  return NodeMetrics(stats, {});
}

// What a server answers to one request, until it closes.
std::string Ask(const std::string& address, const std::string& request) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoul(address.substr(address.rfind(':') + 1))));
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  EXPECT_EQ(::send(fd, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  std::string all;
  char buffer[4096];
  for (ssize_t got; (got = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;)
    all.append(buffer, static_cast<size_t>(got));
  ::close(fd);
  return all;
}

// S03: nothing but reading one page, whatever is asked.
TEST(MetricsServer, S03_AnswersOnePathAlone) {
  auto server = MetricsServer::Start("127.0.0.1:0", Source);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto ask = [&](const std::string& line) {
    return Ask((*server)->address(), line + "\r\nHost: x\r\nConnection: close\r\n\r\n");
  };
  EXPECT_THAT(ask("GET /metrics HTTP/1.1"),
              testing::AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\ncistern_node_hit_blocks_total 12\n")));
  for (const char* line : {"GET / HTTP/1.1", "GET /etc/passwd HTTP/1.1", "GET /../../etc/passwd HTTP/1.1",
                           "PUT /x HTTP/1.1", "DELETE /metrics HTTP/1.1"})
    EXPECT_THAT(ask(line), Not(StartsWith("HTTP/1.1 2"))) << line;
}

TEST(MetricsServer, ABadAddressIsOneLine) {
  EXPECT_TRUE(absl::IsInvalidArgument(MetricsServer::Start("nowhere", Source).status()));
  auto first = MetricsServer::Start("127.0.0.1:0", Source);
  ASSERT_TRUE(first.ok());
  const absl::Status taken = MetricsServer::Start((*first)->address(), Source).status();
  EXPECT_THAT(std::string(taken.message()), HasSubstr("cannot listen on " + (*first)->address()));
}

}  // namespace
}  // namespace cistern
