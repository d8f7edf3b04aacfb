#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_world.h"

namespace cistern {

struct SimReport {
  std::string failure;  // Empty: the run was right.
  uint64_t digest = 0;
  uint64_t events = 0;
  uint64_t turns = 0;
  Nanos simulated = 0;
  std::map<std::string, uint64_t> marks;
};

// A whole cluster on one thread: the real Router, NodeShards and ClientCores on a simulated network, clock
// and control plane, with faults drawn from the seed. The same options give the same run, event by event.
class SimCluster {
 public:
  explicit SimCluster(const SimOptions& options, std::function<void(const std::string&)> print = nullptr);
  ~SimCluster();

  SimReport Run();

 private:
  // One turn: to the next moment at which something happens.
  void Turn();
  void RunFor(Nanos time);
  bool RunUntil(const std::function<bool()>& condition, Nanos at_most);
  Nanos NextMoment() const;

  void WorkloadTurn();
  void Quiesce();
  void CheckQuiet();
  void CheckItWorksAgain();

  // sim_faults.cc
  void FaultTurn();
  void Inject(SimFault kind);
  void LinkFault();
  void Cut();
  void NodeFault();
  void RouterFault();
  void ClientFault();
  void ClockFault();
  void EndFaults();
  std::string AnyHost();
  SimNode& AnyNode() { return *nodes_[world_.random.Below(nodes_.size())]; }

  const SimOptions options_;
  SimClock clock_;
  SimLog log_;
  LoopbackNetwork network_;
  SimWorld world_;
  std::unique_ptr<SimChains> chains_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<std::unique_ptr<SimClient>> clients_;
  uint32_t steps_left_;
  uint64_t turns_ = 0;
};

// Options as the test draws them from a seed: every fifth run is calm.
SimOptions DrawOptions(uint64_t seed);

}  // namespace cistern
