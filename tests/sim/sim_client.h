#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/core/client_core.h"
#include "client/core/group_plan.h"
#include "client/window.h"
#include "tests/sim/sim_chains.h"
#include "tests/sim/sim_memory.h"
#include "tests/sim/sim_world.h"
#include "transport/loopback_transport.h"

namespace cistern {

// One engine: a host with the real ClientCore, the calls it makes and the oracle that judges what comes back.
// Owner: SimCluster. One thread.
class SimClient {
 public:
  SimClient(SimWorld& world, SimChains& chains, std::string host);
  ~SimClient();

  void Start();
  // How its clock's speed differs from others', from now on.
  void SetDrift(int64_t ppm);
  void Crash(LoopbackNetwork::Crash how);
  bool up() const { return process_ != nullptr; }

  // One more call of the workload, whatever comes to mind.
  void Act();
  // Drops every part of one node that is not leased, as an operator would.
  void DropAll(const std::string& node);
  // Stores a chain, or reads it back; `done` gets whether every page was OK.
  void StoreAll(const SimChain& chain, std::function<void(bool)> done);
  void FetchAll(const SimChain& chain, std::function<void(bool)> done);
  // Gives back what it holds; no call follows but StoreAll and FetchAll.
  void Settle();

  bool Poll();
  Nanos NextWake() const;
  const std::string& host() const { return host_; }
  size_t outstanding() const { return calls_out_; }
  // Calls that should have ended long ago; retired memory that somebody wrote.
  void Check();
  void CheckAllRetired();
  size_t nodes_known() const { return process_ == nullptr ? 0 : process_->core->map().nodes.size(); }

 private:
  struct Call;
  struct HeldPlan {
    PlanHandle plan = 0;
    const SimChain* chain = nullptr;
    uint32_t blocks = 0;
  };
  struct Process {
    uint64_t nonce = 0;
    bool has_credentials = false;
    std::string ticket;
    std::unique_ptr<Random> random;
    std::unique_ptr<PutWindow> window;
    std::unique_ptr<LoopbackTransport> transport;
    std::unique_ptr<ClientCore> core;
    std::vector<HeldPlan> plans;
  };

  const SimLayout& LayoutOf(const SimChain& chain) const { return chains_.layout(chain.layout); }
  CallSpec Spec(const SimChain& chain, uint32_t blocks, Nanos deadline) const;
  Nanos DrawDeadline();
  std::shared_ptr<Call> Begin(const char* kind, const SimChain& chain, Nanos deadline);
  void End(Call& call);
  void MaybeCancel(OpId op);
  void Fetch(const SimChain& chain, uint32_t blocks, Nanos deadline, std::function<void(bool)> done);
  void Store(const SimChain& chain, uint32_t first, uint32_t count, Nanos deadline,
             std::function<void(bool)> done);
  void Lookup(const SimChain& chain);
  void Plan(const SimChain& chain);
  void Load();
  void Release(size_t index);
  // sim_tails.cc
  void StoreTail(const SimChain& chain);
  void PlanGroupsOf(const SimChain& chain);
  void JudgeGroups(const Call& call, uint32_t tail_blocks, const GroupPlanOutcome& out);
  void LoadGroups(const SimChain& chain, const GroupPlanOutcome& out);
  void LoadPages(const SimChain& chain, const StoredParts& parts, PlanHandle plan, uint32_t first,
                 uint32_t count);
  void JudgePages(Call& call, absl::Span<const PartResult> results, uint64_t bytes, bool leading);
  void JudgeHit(const Call& call, uint32_t hit_blocks, PartResult stopped_by);
  void CountResult(PartResult result, const char* kind);
  void MarkOwner(PlanHandle plan, const SimChain& chain, uint32_t block);
  void ControlTurn(uint64_t nonce);
  void TakeMarks();

  SimWorld& world_;
  SimChains& chains_;
  const std::string host_;
  HostClock clock_;
  std::unique_ptr<Process> process_;
  bool dirty_ = false;  // A call was made: the core has to be polled.
  bool settled_ = false;
  size_t calls_out_ = 0;
  std::vector<std::shared_ptr<Call>> calls_;  // Out; shared with their callbacks.
  struct Retired {
    Nanos until = 0;
    std::shared_ptr<SimPages> pages;
  };
  std::deque<Retired> retired_;
};

}  // namespace cistern
