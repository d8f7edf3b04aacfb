#include "transport/loopback_transport.h"
#include "transport/transport_suite.h"

namespace cistern {
namespace {

// A client and a node on a simulated network of their own; every step is a moment later.
class LoopbackPair final : public TransportPair {
 public:
  LoopbackPair(TransportHandler& client, TransportHandler& node, bool one_sided)
      : client_(network_, {.host = "client", .listen = {}, .one_sided = one_sided}),
        node_(network_, {.host = "node", .listen = {"node/0"}, .one_sided = one_sided}) {
    client_.SetHandler(&client);
    node_.SetHandler(&node);
  }
  Transport& client() override { return client_; }
  Transport& node() override { return node_; }
  std::string address() const override { return "sim:node/0"; }
  void Step() override {
    clock_.Advance(20 * kMicrosecond);
    client_.Poll();
    node_.Poll();
  }
  void KillClient() override { network_.CrashHost("client", LoopbackNetwork::Crash::kReset); }

 private:
  SimClock clock_;
  LoopbackNetwork network_{clock_, 11};
  LoopbackTransport client_, node_;
};

TransportKind Kind(const std::string& name, bool one_sided) {
  return {name, one_sided, false, [one_sided](TransportHandler& client, TransportHandler& node) {
            return std::make_unique<LoopbackPair>(client, node, one_sided);
          }};
}

INSTANTIATE_TEST_SUITE_P(Loopback, TransportSuite,
                         ::testing::Values(Kind("copied", false), Kind("one_sided", true)),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace cistern
