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

int IntOption(int fd, int name) {
  int value = -1;
  socklen_t bytes = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, name, &value, &bytes) == 0 ? value : -1;
}

TEST(TuneTcp, PacesNothingBetweenTwoEndsOnOneHost) {
  const auto listen_at = SocketAddress::Parse("tcp:127.0.0.1:0");
  ASSERT_TRUE(listen_at.ok());
  const auto listener = listen_at->Listen();
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto address = SocketAddress::Parse(BoundAddress(listener->get()).value());
  ASSERT_TRUE(address.ok());
  const auto fd = address->Connect();
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
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof(address);
  ASSERT_EQ(bind(listener.get(), raw, bytes), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), raw, &bytes), 0);
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(fd.get(), raw, bytes), 0);
  TuneTcp(fd.get());
  // Half of the kernel's own bound is the most it takes.
  int64_t least = 0, fresh = 0, most = 0;
  std::ifstream("/proc/sys/net/ipv4/tcp_rmem") >> least >> fresh >> most;
  EXPECT_GE(IntOption(fd.get(), SO_RCVBUF), std::min<int64_t>(kSameHostWindowBytes, most / 2));
  EXPECT_EQ(IntOption(fd.get(), SO_RCVLOWAT), 1);
}

}  // namespace
}  // namespace cistern
