#include "tests/sim/sim_cluster.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace cistern {
namespace {

constexpr Nanos kJoinTime = 3 * kSecond;
constexpr Nanos kCallGap = 12 * kMillisecond;  // Mean is half of it.
constexpr Nanos kQuietTime = 6 * kSecond;   // Longer than any lease or put of the workload, with its grace.
constexpr uint64_t kTurnsMax = 20'000'000;  // A run that goes on for ever is a bug as well.

}  // namespace

SimOptions DrawOptions(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15);
  SimOptions options;
  options.seed = seed;
  options.calm = seed % 5 == 0;
  options.read_flips = seed % 2 == 1;
  options.nodes = 2 + static_cast<uint32_t>(random.Below(3));
  options.clients = 2 + static_cast<uint32_t>(random.Below(2));
  options.ram_bytes = options.calm ? uint64_t{64} << 20 : uint64_t{4 + 2 * random.Below(4)} << 20;
  options.run_blocks_cap = 1u << random.Below(4);
  options.disks = random.Chance(0.4);
  return options;
}

SimCluster::SimCluster(const SimOptions& options, std::function<void(const std::string&)> print)
    : options_(options),
      log_(clock_),
      network_(clock_, options.seed ^ 0x6e6574),
      world_(options_, clock_, network_, log_),
      steps_left_(options.steps) {
  log_.SetPrinter(std::move(print));
  network_.SetObserver([this](const LoopbackEvent& event) {
    // Both hosts, or a run could differ in who talks to whom without showing it.
    const std::string link = std::string(event.from) + ">" + std::string(event.to);
    log_.Event(event.what, link, static_cast<uint64_t>(event.type) << 32 | event.connection, event.id);
  });
}

SimCluster::~SimCluster() {
  clients_.clear();
  nodes_.clear();
}

Nanos SimCluster::NextMoment() const {
  Nanos next = std::min({network_.NextEventAt(), world_.schedule.next(), world_.RouterWake()});
  for (const auto& node : nodes_) next = std::min(next, node->NextWake());
  for (const auto& client : clients_) next = std::min(next, client->NextWake());
  return next;
}

void SimCluster::Turn() {
  // Time passes in every turn, so that an actor that wants to be polled again at once cannot stop it.
  const Nanos now = clock_.Now();
  clock_.Set(std::clamp(NextMoment(), now + kMicrosecond, now + 100 * kMillisecond));
  world_.schedule.RunDue(clock_.Now());
  world_.TickRouter();
  network_.Route();
  for (const auto& node : nodes_) node->Poll();
  for (const auto& client : clients_) {
    client->Poll();
    client->Check();
  }
  if (++turns_ > kTurnsMax) log_.Fail("the run does not end");
}

void SimCluster::RunFor(Nanos time) {
  const Nanos end = clock_.Now() + time;
  while (clock_.Now() < end && !log_.failed()) Turn();
}

bool SimCluster::RunUntil(const std::function<bool()>& condition, Nanos at_most) {
  const Nanos end = clock_.Now() + at_most;
  while (!condition() && clock_.Now() < end && !log_.failed()) Turn();
  return condition();
}

void SimCluster::WorkloadTurn() {
  if (steps_left_ == 0 || log_.failed()) return;
  --steps_left_;
  clients_[world_.random.Below(clients_.size())]->Act();
  const auto gap = static_cast<Nanos>(world_.random.Below(kCallGap));
  // Sometimes everybody is silent for a while: leases end, idle peers die.
  const Nanos pause = world_.random.Chance(0.01) ? static_cast<Nanos>(world_.random.Below(3 * kSecond)) : 0;
  world_.schedule.At(clock_.Now() + gap + pause, [this] { WorkloadTurn(); });
}

SimReport SimCluster::Run() {
  world_.StartRouter();
  chains_ = std::make_unique<SimChains>(world_.router->NamespaceSecret("default"), world_.random);
  for (uint32_t i = 0; i < options_.nodes; ++i) {
    nodes_.push_back(std::make_unique<SimNode>(world_, "node-" + std::to_string(i + 1),
                                               1 + static_cast<uint32_t>(world_.random.Below(2))));
    nodes_.back()->Start();
  }
  for (uint32_t i = 0; i < options_.clients; ++i) {
    clients_.push_back(std::make_unique<SimClient>(world_, *chains_, "client-" + std::to_string(i + 1)));
    clients_.back()->Start();
  }
  const auto joined = [this] {
    const bool registered =
        std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->registered(); });
    return registered && std::all_of(clients_.begin(), clients_.end(), [this](const auto& client) {
             return client->nodes_known() == nodes_.size();
           });
  };
  if (!RunUntil(joined, kJoinTime) && options_.calm) log_.Fail("nodes did not join");
  WorkloadTurn();
  if (!options_.calm) FaultTurn();
  RunUntil([this] { return steps_left_ == 0; }, 1000 * kSecond);
  if (!log_.failed()) Quiesce();
  if (!log_.failed()) CheckQuiet();
  if (!log_.failed()) CheckItWorksAgain();
  for (const auto& client : clients_) client->CheckAllRetired();
  for (const auto& [name, times] : network_.injected()) log_.Mark("net_" + name, times);
  SimReport report;
  report.failure = log_.failure();
  report.digest = log_.digest();
  report.events = log_.events();
  report.turns = turns_;
  report.simulated = clock_.Now();
  report.marks = log_.marks();
  return report;
}

// Faults end, everybody comes back, clients give back what they hold, and time passes.
void SimCluster::Quiesce() {
  log_.Event("quiesce", "cluster");
  EndFaults();
  for (const auto& client : clients_) client->Settle();
  const auto all_ended = [this] {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->outstanding() == 0; });
  };
  if (!RunUntil(all_ended, 10 * kSecond)) log_.Fail("calls do not end");
  for (const auto& client : clients_) client->Settle();  // Plans that came back late.
  RunFor(kQuietTime);
}

void SimCluster::CheckQuiet() {
  for (const auto& node : nodes_) {
    const std::string wrong = node->CheckQuiet();
    if (!wrong.empty()) log_.Fail("after quiet: " + wrong + " (F14)");
  }
  if (options_.calm) {
    uint64_t evicted = 0;
    for (const auto& node : nodes_) evicted += node->evicted();
    if (evicted != 0) log_.Fail("a node with room evicted something");
  }
}

// With all faults over, what one client stores the next one reads, completely: caches that only ever miss are
// right but useless. A few attempts are allowed: breakers and negative caches have their times.
void SimCluster::CheckItWorksAgain() {
  for (size_t i = 0; i < clients_.size() && !log_.failed(); ++i) {
    const SimChain& chain = chains_->Fresh(i % chains_->layouts(), world_.random);
    bool works = false;
    for (int attempt = 0; attempt < 5 && !works && !log_.failed(); ++attempt) {
      int stored = -1, fetched = -1;
      clients_[i]->StoreAll(chain, [&](bool all) { stored = all; });
      RunUntil([&] { return stored >= 0; }, 5 * kSecond);
      clients_[(i + 1) % clients_.size()]->FetchAll(chain, [&](bool all) { fetched = all; });
      RunUntil([&] { return fetched >= 0; }, 5 * kSecond);
      works = stored == 1 && fetched == 1;
      if (!works) RunFor(kSecond);
    }
    if (!works) log_.Fail("the cluster is whole again, and still a chain cannot be stored and read");
  }
}

}  // namespace cistern
