#include "transport/socket_address.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <string>

namespace cistern {
namespace {

std::string CongestionOf(int fd) {
  char name[16] = {};
  socklen_t bytes = sizeof(name);
  return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0 ? name : "unknown";
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

}  // namespace
}  // namespace cistern
