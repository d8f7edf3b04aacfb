// What goes wrong in a simulated cluster, and when.
#include "tests/sim/sim_faults.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "tests/sim/sim_cluster.h"

namespace cistern {

namespace {

// How often each kind comes, relative to the others.
constexpr SimFault kTurns[] = {kFaultLink, kFaultLink,  kFaultLink,   kFaultCut,    kFaultCut,  kFaultNode,
                               kFaultNode, kFaultNode,  kFaultRouter, kFaultClient, kFaultFlip, kFaultFlip,
                               kFaultDrop, kFaultReset, kFaultDisk,   kFaultDisk,   kFaultClock};

}  // namespace

void SimCluster::FaultTurn() {
  if (world_.quiet) return;
  const SimFault kind = kTurns[world_.random.Below(std::size(kTurns))];
  if ((options_.faults & kind) != 0) Inject(kind);
  const Nanos next = kMillisecond * static_cast<Nanos>(20 + world_.random.Below(500));
  world_.schedule.At(clock_.Now() + next, [this] { FaultTurn(); });
}

void SimCluster::Inject(SimFault kind) {
  switch (kind) {
    case kFaultLink:
      return LinkFault();
    case kFaultCut:
      return Cut();
    case kFaultNode:
      return NodeFault();
    case kFaultRouter:
      return RouterFault();
    case kFaultClient:
      return ClientFault();
    case kFaultFlip: {
      // Often many at once, so that one of them hits something that is read again.
      SimNode& node = AnyNode();
      const int flips = world_.random.Chance(0.5) ? 1 : 200;
      for (int i = 0; options_.read_flips && i < flips; ++i) {
        if (node.FlipBit()) log_.Mark("bit_flipped_in_memory");
      }
      return;
    }
    case kFaultDrop:
      return clients_[world_.random.Below(clients_.size())]->DropAll(AnyNode().id());
    case kFaultReset:
      return network_.ResetConnections(clients_[world_.random.Below(clients_.size())]->host(),
                                       AnyNode().id());
    case kFaultDisk:
      return AnyNode().DiskFault();
    case kFaultClock:
      return ClockFault();
    case kFaultRpc:    // At each call.
    case kFaultTwice:  // With the faults of a link.
      return;
  }
}

void SimCluster::LinkFault() {
  Random& random = world_.random;
  LinkFaults faults;
  faults.delay_max = static_cast<Nanos>(random.Below(20)) * kMillisecond;
  faults.spike = random.Unit() * 0.1;
  faults.spike_max = static_cast<Nanos>(random.Below(800)) * kMillisecond;
  faults.chunk_max = static_cast<Nanos>(random.Below(random.Chance(0.3) ? 200 : 5)) * kMillisecond;
  if (random.Chance(0.3)) faults.reset = random.Unit() * 0.02;
  if (random.Chance(0.3) && (options_.faults & kFaultTwice) != 0) faults.twice = random.Unit() * 0.05;
  if (random.Chance(0.3)) faults.flip_body = random.Unit() * 0.02;
  if (random.Chance(0.3)) faults.flip_payload = random.Unit() * 0.1;
  const std::string from = AnyHost(), to = AnyHost();
  const bool both = random.Chance(0.5);
  for (const auto& [a, b] : {std::pair(from, to), std::pair(to, from)}) {
    LinkFaults mine = faults;
    if (!options_.read_flips && b.starts_with("client")) mine.flip_payload = 0;
    if (both || a == from) network_.SetFaults(a, b, mine);
  }
  log_.Event("link fault", from, 0, 0, to);
  if (random.Chance(0.3)) {
    world_.schedule.At(clock_.Now() + static_cast<Nanos>(random.Below(2000)) * kMillisecond,
                       [this] { network_.ClearFaults(); });
  }
}

std::string SimCluster::AnyHost() {
  const uint64_t pick = world_.random.Below(nodes_.size() + clients_.size());
  return pick < nodes_.size() ? nodes_[pick]->id() : clients_[pick - nodes_.size()]->host();
}

void SimCluster::Cut() {
  const std::string a = world_.random.Chance(0.25) ? kRouterHost : AnyHost(), b = AnyHost();
  if (a == b) return;
  const bool both = world_.random.Chance(0.6);
  log_.Event(both ? "cut" : "cut one way", a, 0, 0, b);
  log_.Mark(both ? "partition" : "partition_one_way");
  if (both) {
    network_.Partition(a, b);
  } else {
    network_.PartitionOneWay(a, b);
  }
  // Some heal before anybody's deadline, some long after.
  const Nanos heals =
      kMillisecond * static_cast<Nanos>(1 + world_.random.Below(world_.random.Chance(0.5) ? 300 : 6000));
  world_.schedule.At(clock_.Now() + heals, [this, a, b] {
    log_.Event("heal", a, 0, 0, b);
    network_.Heal(a, b);
  });
}

void SimCluster::NodeFault() {
  SimNode& node = AnyNode();
  if (!node.up()) return;
  const uint64_t pick = world_.random.Below(10);
  if (pick < 4) {
    // Short stops are noticed by nobody, long ones cost the peers their deadlines.
    node.Freeze(clock_.Now() +
                kMillisecond * static_cast<Nanos>(1 + world_.random.Below(pick == 0 ? 5000 : 600)));
    return;
  }
  if (pick == 4) {
    node.Stop();
  } else {
    node.Crash(pick < 8 ? LoopbackNetwork::Crash::kReset : LoopbackNetwork::Crash::kSilent);
  }
  const Nanos back =
      kMillisecond * static_cast<Nanos>(world_.random.Below(world_.random.Chance(0.5) ? 200 : 5000));
  world_.schedule.At(clock_.Now() + back, [&node] {
    if (!node.up()) node.Start();
  });
}

void SimCluster::RouterFault() {
  if (!world_.RouterUp()) return;
  world_.StopRouter();
  const Nanos back =
      kMillisecond * static_cast<Nanos>(world_.random.Below(world_.random.Chance(0.5) ? 300 : 8000));
  world_.schedule.At(clock_.Now() + back, [this] { world_.StartRouter(); });
}

void SimCluster::ClientFault() {
  SimClient& client = *clients_[world_.random.Below(clients_.size())];
  if (!client.up()) return;
  client.Crash(world_.random.Chance(0.7) ? LoopbackNetwork::Crash::kReset : LoopbackNetwork::Crash::kSilent);
  const Nanos back = kMillisecond * static_cast<Nanos>(world_.random.Below(1000));
  world_.schedule.At(clock_.Now() + back, [&client] {
    if (!client.up()) client.Start();
  });
}

void SimCluster::ClockFault() {
  Random& random = world_.random;
  if (random.Chance(0.3)) {
    // Often within what tickets allow for, sometimes hours.
    const auto most = static_cast<int64_t>(random.Chance(0.5) ? kTicketSkewSeconds : 5 * 3600);
    return AnyNode().SetWallSkew(static_cast<int64_t>(random.Below(2 * most)) - most);
  }
  // A machine whose clock nearly stands still, as while its host moves it: its reader trusts leases that
  // nodes have ended long ago.
  SimClient& client = *clients_[random.Below(clients_.size())];
  client.SetDrift(-static_cast<int64_t>(200'000 + random.Below(750'000)));
  world_.schedule.At(clock_.Now() + static_cast<Nanos>(500 + random.Below(6000)) * kMillisecond,
                     [&client] { client.SetDrift(0); });
}

void SimCluster::EndFaults() {
  world_.quiet = true;
  network_.ClearFaults();
  network_.HealAll();
  world_.StartRouter();
  for (const auto& node : nodes_) {
    node->Freeze(clock_.Now());
    node->Heal();
    if (!node->up()) node->Start();
  }
  for (const auto& client : clients_) {
    client->SetDrift(0);
    if (!client->up()) client->Start();
  }
}

}  // namespace cistern
