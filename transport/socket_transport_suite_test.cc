#include "transport/socket_test_pair.h"
#include "transport/transport_suite.h"

namespace cistern {
namespace {

TransportKind Tcp() {
  return {"tcp", false, true, [](TransportHandler& client, TransportHandler& node) {
            return std::make_unique<SocketPair>(client, node, "tcp:127.0.0.1:0");
          }};
}
TransportKind Map() {
  return {"map", true, true, [](TransportHandler& client, TransportHandler& node) {
            return std::make_unique<SocketPair>(client, node, FreshUnixAddress());
          }};
}

TransportKind MapWithoutRing() {
  return {"map_without_ring", true, true, [](TransportHandler& client, TransportHandler& node) {
            return std::make_unique<SocketPair>(client, node, FreshUnixAddress(),
                                                SocketOptions{.offer_rings = false});
          }};
}
INSTANTIATE_TEST_SUITE_P(Socket, TransportSuite, ::testing::Values(Tcp(), Map(), MapWithoutRing()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace cistern
