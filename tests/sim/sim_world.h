#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/random.h"
#include "core/ticket.h"
#include "router/router.h"
#include "tests/sim/sim_faults.h"
#include "tests/sim/sim_log.h"
#include "tests/sim/sim_time.h"
#include "transport/loopback_network.h"

namespace cistern {

inline constexpr int64_t kSimUnixStart = 1'700'000'000;
inline constexpr char kRouterHost[] = "router";

// How a run differs from another besides its seed's draws.
struct SimOptions {
  uint64_t seed = 1;
  uint32_t steps = 400;  // Calls that clients make.
  uint32_t nodes = 3;
  uint32_t clients = 2;
  uint64_t ram_bytes = 8u << 20;                   // Of each shard.
  uint32_t run_blocks_cap = kRunBlocksCapDefault;  // A power of two.
  bool read_flips =
      true;  // Bits flip in the nodes' memory and on the way to readers; else only on the way to nodes.
  uint32_t faults = kAllFaults;  // Which kinds may happen; nothing of it where `calm`.
  bool disks = false;            // Nodes have a log on a device in memory.
  bool calm = false;             // No faults and room for all: then every visible block has to hit.
};

// What every actor of a run shares: time, network, chances, log and the control plane. One thread.
struct SimWorld {
  SimWorld(const SimOptions& options, SimClock& clock, LoopbackNetwork& network, SimLog& log);

  int64_t UnixNow() const { return kSimUnixStart + clock.Now() / kSecond; }
  // A control call from `host` to the router: both ways take their time, may be lost behind cuts or by
  // chance, and the request may arrive twice (a retry after a lost answer). `handle` runs at the router and
  // returns what the answer does.
  void Rpc(const std::string& host, std::function<std::function<void()>(Router&)> handle);

  void StartRouter();
  void StopRouter();
  bool RouterUp() const { return router != nullptr; }
  Nanos RouterWake() const { return router == nullptr ? kNever : router_clock.ToSim(router_wake); }
  void TickRouter();

  const SimOptions& options;
  SimClock& clock;
  LoopbackNetwork& network;
  SimLog& log;
  Random random;  // Faults, delays, workload.
  SimSchedule schedule;
  ClusterKey key;
  bool quiet = false;  // The run is over: no more faults, no more losses.

  HostClock router_clock;
  Random router_random;
  MemoryStateStore store;
  std::unique_ptr<Router> router;
  Nanos router_wake = 0;

 private:
  void Deliver(const std::string& host, const std::function<std::function<void()>(Router&)>& handle);
  bool RpcFaults() const { return !quiet && !options.calm && (options.faults & kFaultRpc) != 0; }
  Nanos ControlDelay() { return kMillisecond / 4 + static_cast<Nanos>(random.Below(3 * kMillisecond)); }
};

}  // namespace cistern
