#include "transport/socket_address.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace cistern {
namespace {

std::string CongestionOf(int fd) {
  char name[16] = {};
  socklen_t bytes = sizeof(name);
  return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0 ? name : "unknown";
}

absl::StatusOr<UniqueFd> ConnectedTo(const UniqueFd& listener) {
  return SocketAddress::Parse(BoundAddress(listener.get()).value()).value().Connect();
}

int IntOption(int fd, int name) {
  int value = -1;
  socklen_t bytes = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, name, &value, &bytes) == 0 ? value : -1;
}

TEST(TuneTcp, PacesNothingBetweenTwoEndsOnOneHost) {
  const auto listener = SocketAddress::Parse("tcp:127.0.0.1:0").value().Listen();
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto fd = ConnectedTo(*listener);
  ASSERT_TRUE(fd.ok()) << fd.status();
  const UniqueFd alone(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string by_default = CongestionOf(alone.get());
  TuneTcp(fd->get());
  TuneTcp(alone.get());  // Connected to nobody yet.
  EXPECT_EQ(CongestionOf(fd->get()), "reno");
  EXPECT_EQ(CongestionOf(alone.get()), by_default);
  int no_delay = 0;
  socklen_t bytes = sizeof(no_delay);
  ASSERT_EQ(getsockopt(alone.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &bytes), 0);
  EXPECT_NE(no_delay, 0);
}

TEST(TuneTcp, GivesRoomAtOnceBetweenTwoEndsOnOneHost) {
  const auto listener = SocketAddress::Parse("tcp:127.0.0.1:0").value().Listen();
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto fd = ConnectedTo(*listener);
  ASSERT_TRUE(fd.ok()) << fd.status();
  TuneTcp(fd->get());
  // Half of the kernel's own bound is the most it takes.
  int64_t least = 0, fresh = 0, most = 0;
  std::ifstream("/proc/sys/net/ipv4/tcp_rmem") >> least >> fresh >> most;
  EXPECT_GE(IntOption(fd->get(), SO_RCVBUF), std::min<int64_t>(kSameHostWindowBytes, most / 2));
  EXPECT_EQ(IntOption(fd->get(), SO_RCVLOWAT), 1);
}

}  // namespace
}  // namespace cistern
