#include "tests/sim/sim_world.h"

#include <utility>

#include "core/check.h"
#include "tests/sim/fixed_key.h"

namespace cistern {
namespace {

constexpr double kRpcLoss = 0.02;
constexpr double kRpcTwice = 0.02;

}  // namespace

SimWorld::SimWorld(const SimOptions& options_in, SimClock& clock_in, LoopbackNetwork& network_in,
                   SimLog& log_in)
    : options(options_in),
      clock(clock_in),
      network(network_in),
      log(log_in),
      random(options_in.seed),
      key(FixedClusterKey()),
      router_clock(clock_in, 7 * kSecond, 0),
      router_random(options_in.seed ^ 0x726f75746572) {}

void SimWorld::StartRouter() {
  if (router != nullptr) return;
  RouterConfig config;
  ClusterId cluster;
  cluster.bytes.fill(0x11);
  config.cluster = cluster;
  config.run_blocks_cap = options.run_blocks_cap;
  absl::StatusOr<std::unique_ptr<Router>> made =
      Router::Create(config, key, store, router_clock, router_random);
  CISTERN_CHECK(made.ok());
  router = *std::move(made);
  router_wake = router_clock.Now();
  log.Event("start", kRouterHost, router->map().epoch);
}

void SimWorld::StopRouter() {
  if (router == nullptr) return;
  router.reset();
  log.Event("stop", kRouterHost);
  log.Mark("router_restarted");
}

void SimWorld::TickRouter() {
  if (router == nullptr || router_clock.Now() < router_wake) return;
  const uint64_t before = router->map().epoch;
  router_wake = router->Tick();
  if (router->map().epoch != before) log.Event("epoch", kRouterHost, router->map().epoch);
}

void SimWorld::Rpc(const std::string& host, std::function<std::function<void()>(Router&)> handle) {
  if (RpcFaults() && random.Chance(kRpcLoss)) return;
  const bool twice = RpcFaults() && random.Chance(kRpcTwice);
  for (int i = 0; i < (twice ? 2 : 1); ++i) {
    schedule.At(clock.Now() + ControlDelay(), [this, host, handle] { Deliver(host, handle); });
  }
}

void SimWorld::Deliver(const std::string& host, const std::function<std::function<void()>(Router&)>& handle) {
  if (router == nullptr || network.IsCut(host, kRouterHost)) return;
  const uint64_t before = router->map().epoch;
  std::function<void()> answer = handle(*router);
  router_wake = std::min(router_wake, router_clock.Now());
  if (router->map().epoch != before) log.Event("epoch", kRouterHost, router->map().epoch);
  if (RpcFaults() && random.Chance(kRpcLoss)) return;
  schedule.At(clock.Now() + ControlDelay(), [this, host, answer = std::move(answer)] {
    if (!network.IsCut(kRouterHost, host)) answer();
  });
}

}  // namespace cistern
