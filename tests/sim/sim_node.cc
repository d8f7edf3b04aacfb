#include "tests/sim/sim_node.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/check.h"

namespace cistern {
namespace {

constexpr int kStopPolls = 50;

}  // namespace

SimNode::SimNode(SimWorld& world, std::string id, uint32_t shards)
    : world_(world),
      id_(std::move(id)),
      shard_count_(shards),
      clock_(world.clock, static_cast<Nanos>(world.random.Below(100'000)) * kSecond,
             static_cast<int64_t>(world.random.Below(401)) - 200) {
  for (uint32_t i = 0; i < shards && world.options.disks; ++i)
    disks_.push_back(std::make_unique<SimDisk>(world, id_ + "/" + std::to_string(i)));
}

SimNode::~SimNode() {
  if (process_ == nullptr) return;
  for (Shard& shard : process_->shards) shard.shard.reset();
}

void SimNode::Start() {
  CISTERN_CHECK(process_ == nullptr);
  process_ = std::make_unique<Process>();
  process_->boot_nonce = world_.random.Next() | 1;
  process_->random = std::make_unique<Random>(world_.random.Next());
  for (uint32_t i = 0; i < shard_count_; ++i) {
    Shard shard;
    LoopbackOptions options;
    options.host = id_;
    options.listen = {id_ + "/" + std::to_string(i)};
    shard.transport = std::make_unique<LoopbackTransport>(world_.network, options);
    NodeShardOptions node;
    node.node_id = id_;
    node.shard = i;
    node.shards = shard_count_;
    node.ram_bytes = world_.options.ram_bytes;
    node.cluster_key = world_.key;
    node.unix_now = [this] { return WallNow(); };
    absl::StatusOr<std::unique_ptr<NodeShard>> made =
        NodeShard::Create(node, clock_, *shard.transport, *process_->random);
    CISTERN_CHECK(made.ok());
    shard.shard = *std::move(made);
    if (!disks_.empty()) shard.shard->AttachDisk(disks_[i]->Open(clock_, *process_->random));
    process_->shards.push_back(std::move(shard));
  }
  world_.log.Event("start", id_);
  RegistrarTurn(process_->boot_nonce);
}

void SimNode::Crash(LoopbackNetwork::Crash how) {
  if (process_ == nullptr) return;
  TakeMarks();
  for (const Shard& shard : process_->shards) {
    if (shard.shard->puts().size() != 0) world_.log.Mark("node_died_with_puts");
    if (shard.shard->leases().plans() != 0) world_.log.Mark("node_died_with_leases");
  }
  world_.log.Event("crash", id_, static_cast<uint64_t>(how));
  world_.network.CrashHost(id_, how);
  EndProcess();
  for (const auto& disk : disks_) {
    if (how == LoopbackNetwork::Crash::kSilent) disk->PowerCut();
  }
  world_.log.Mark(how == LoopbackNetwork::Crash::kReset ? "node_killed" : "node_lost_silently");
}

void SimNode::Stop() {
  if (process_ == nullptr) return;
  TakeMarks();
  world_.log.Event("stop", id_);
  for (Shard& shard : process_->shards) {
    if (shard.shard->disk() == nullptr) continue;
    // No time passes here: what is not on disk by then is as after kill -9.
    shard.shard->disk()->Stop(0);
    DiskLog& log = shard.shard->disk()->log();
    for (int i = 0; i < kStopPolls && !log.IsIdle(); ++i) log.Poll();
    if (log.IsIdle()) world_.log.Mark("disk_sealed_at_a_stop");
  }
  EndProcess();
}

void SimNode::EndProcess() {
  for (const auto& disk : disks_) disk->Closed();
  for (Shard& shard : process_->shards) shard.shard.reset();
  process_.reset();
  frozen_until_ = 0;
}

void SimNode::Freeze(Nanos until) {
  const bool thaws = until <= world_.clock.Now();
  frozen_until_ = thaws ? 0 : std::max(frozen_until_, until);
  if (thaws) return;
  world_.log.Event("freeze", id_, static_cast<uint64_t>(frozen_until_));
  world_.log.Mark("node_frozen");
}

bool SimNode::FlipBit() {
  if (process_ == nullptr) return false;
  NodeShard& shard = *process_->shards[world_.random.Below(process_->shards.size())].shard;
  // Only bytes of parts: what a bit flip in the node's own tables does is not for its readers to survive.
  const uint64_t at = world_.random.Below(shard.ram().capacity_bytes());
  shard.arena().data()[at] ^= std::byte{1} << world_.random.Below(8);
  world_.log.Event("flip", id_, at);
  return true;
}

void SimNode::DiskFault() {
  if (disks_.empty()) return;
  SimDisk& disk = *disks_[world_.random.Below(disks_.size())];
  if (world_.random.Chance(0.7)) {
    disk.Fault();
    const auto heals = static_cast<Nanos>(1 + world_.random.Below(3000)) * kMillisecond;
    world_.schedule.At(world_.clock.Now() + heals, [&disk] { disk.Heal(); });
    return;
  }
  const int flips = world_.random.Chance(0.5) ? 1 : 200;
  for (int i = 0; i < flips; ++i) {
    if (disk.FlipBit()) world_.log.Mark("bit_flipped_on_disk");
  }
}

void SimNode::SetWallSkew(int64_t seconds) {
  wall_skew_s_ = seconds;
  world_.log.Event("wall clock", id_, static_cast<uint64_t>(seconds));
  world_.log.Mark("wall_clock_jumped");
}

void SimNode::Heal() {
  wall_skew_s_ = 0;
  for (const auto& disk : disks_) disk->Heal();
}

bool SimNode::Poll() {
  if (process_ == nullptr || frozen()) return false;
  bool any = false;
  for (Shard& shard : process_->shards) {
    const bool due = shard.transport->HasWork() ||
                     std::min(shard.wake, clock_.ToSim(shard.shard->NextWake())) <= world_.clock.Now();
    if (!due) continue;
    any |= shard.shard->Poll();
    shard.wake = clock_.ToSim(shard.shard->NextWake());
    const uint64_t evicted = shard.shard->counters().evicted_parts;
    if (evicted > shard.evicted_before && shard.shard->ram().leased_parts() != 0) {
      world_.log.Mark("evicted_beside_leases", evicted - shard.evicted_before);
    }
    shard.evicted_before = evicted;
    if (shard.shard->ram().doomed_parts() != 0) world_.log.Mark("dropped_while_leased");
    if (shard.shard->ram().superseded_bytes() != 0) world_.log.Mark("tails_superseded");
    if (shard.shard->ram().stranded_bytes() != 0) world_.log.Mark("stranded");
  }
  return any;
}

Nanos SimNode::NextWake() const {
  if (process_ == nullptr) return kNever;
  if (frozen()) return frozen_until_;
  Nanos wake = kNever;
  for (const Shard& shard : process_->shards) {
    if (shard.transport->HasWork()) return world_.clock.Now();
    wake = std::min({wake, shard.wake, clock_.ToSim(shard.shard->NextWake())});
  }
  return wake;
}

void SimNode::RegistrarTurn(uint64_t boot_nonce) {
  if (!IsNow(boot_nonce)) return;
  Nanos next = 500 * kMillisecond;
  if (!frozen()) {
    if (process_->registered) {
      SendHeartbeat();
    } else {
      SendRegister();
      next = 50 * kMillisecond + static_cast<Nanos>(world_.random.Below(100 * kMillisecond));
    }
  }
  world_.schedule.At(world_.clock.Now() + next, [this, boot_nonce] { RegistrarTurn(boot_nonce); });
}

void SimNode::SendRegister() {
  RegisterRequest request;
  request.node_id = id_;
  request.boot_nonce = process_->boot_nonce;
  request.ram_bytes = world_.options.ram_bytes * shard_count_;
  request.held_incarnation = process_->incarnation;
  request.place = id_;
  for (uint32_t i = 0; i < shard_count_; ++i) {
    ShardAddress address;
    address.unix_name = "sim:" + id_ + "/" + std::to_string(i);
    request.shards.push_back(address);
  }
  request.proof = RegisterProof(world_.key, request);
  const uint64_t nonce = process_->boot_nonce;
  world_.Rpc(id_, [this, request, nonce](Router& router) -> std::function<void()> {
    const absl::StatusOr<Registration> registration = router.Register(request);
    if (!registration.ok()) return [this] { world_.log.Mark("registration_refused"); };
    return [this, nonce, registration = *registration] {
      if (!IsNow(nonce)) return;
      process_->registered = true;
      process_->incarnation = registration.incarnation;
      world_.log.Event("registered", id_, registration.incarnation);
      for (Shard& shard : process_->shards)
        shard.shard->SetIdentity(registration.cluster, registration.incarnation);
    };
  });
}

void SimNode::SendHeartbeat() {
  HeartbeatRequest request;
  request.node_id = id_;
  request.incarnation = process_->incarnation;
  request.proof = HeartbeatProof(world_.key, id_, process_->incarnation);
  const uint64_t nonce = process_->boot_nonce;
  world_.Rpc(id_, [this, request, nonce](Router& router) -> std::function<void()> {
    const absl::StatusOr<HeartbeatResult> result = router.Heartbeat(request);
    const bool known = result.ok() && result->known;
    return [this, nonce, known] {
      if (!IsNow(nonce) || known) return;
      process_->registered = false;
      world_.log.Mark("node_forgotten_by_router");
    };
  });
}

uint64_t SimNode::evicted() const {
  uint64_t evicted = 0;
  if (process_ == nullptr) return 0;
  for (const Shard& shard : process_->shards) evicted += shard.shard->counters().evicted_parts;
  return evicted;
}

std::string SimNode::CheckQuiet() const {
  if (process_ == nullptr) return id_ + " is not up";
  const_cast<SimNode*>(this)->TakeMarks();
  for (const Shard& shard : process_->shards) {
    const NodeShard& node = *shard.shard;
    const RamTier& ram = shard.shard->ram();
    const std::string who = id_ + ": ";
    if (node.leases().plans() != 0) return who + std::to_string(node.leases().plans()) + " leases live";
    if (node.leases().holds() != 0)
      return who + std::to_string(node.leases().holds()) + " payload holds live";
    if (node.puts().size() != 0) return who + std::to_string(node.puts().size()) + " puts live";
    if (ram.leased_parts() != 0) return who + std::to_string(ram.leased_parts()) + " parts leased";
    if (ram.doomed_parts() != 0) return who + std::to_string(ram.doomed_parts()) + " parts doomed";
    if (ram.writing_parts() != 0) return who + std::to_string(ram.writing_parts()) + " parts being written";
    if (ram.pinned_bytes() != 0) return who + std::to_string(ram.pinned_bytes()) + " bytes pinned";
    uint64_t used_slots = 0, busy = 0, assigned = 0;
    for (uint32_t i = 0; i < ram.pool().slab_count(); ++i) {
      const Slab& slab = ram.pool().slab(i);
      used_slots += slab.used;
      busy += slab.busy;
      assigned += slab.size_class != kNoClass;
    }
    if (busy != 0) return who + std::to_string(busy) + " slots busy";
    if (used_slots != ram.parts()) {
      return who + std::to_string(used_slots) + " slots taken by " + std::to_string(ram.parts()) +
             " visible parts";
    }
    if (assigned + ram.pool().free_slabs() != ram.pool().slab_count()) return who + "slabs lost";
  }
  return {};
}

void SimNode::TakeMarks() {
  for (const Shard& shard : process_->shards) CountMarks(*shard.shard);
  for (size_t i = 0; i < disks_.size(); ++i) disks_[i]->CountMarks(*process_->shards[i].shard->disk());
}

void SimNode::CountMarks(const NodeShard& shard) {
  const NodeCounters& c = shard.counters();
  SimLog& log = world_.log;
  log.Mark("evicted", c.evicted_parts);
  log.Mark("slab_moved", c.slabs_moved);
  log.Mark("lease_expired_on_node", c.leases_expired);
  log.Mark("put_expired", c.puts_expired);
  log.Mark("put_abandoned", c.puts_abandoned);
  log.Mark("corrupt_put_refused", c.corrupt_puts);
  log.Mark("node_had_no_space", c.no_space);
  log.Mark("wrong_shard", c.wrong_shard_blocks);
  log.Mark("peer_refused", c.peers_refused);
  log.Mark("dropped_by_admin", c.dropped_parts);
  // A stream brings nothing twice: that a node refuses what comes again is right.
  if (c.bad_frames != 0 && world_.network.injected().count("twice") == 0)
    log.Fail(id_ + " got " + std::to_string(c.bad_frames) + " frames that did not decode");
  if (c.collisions_rejected != 0) log.Fail(id_ + " saw a hash collision");
  if (c.lookup_blocks != c.hit_blocks + c.miss_blocks)
    log.Fail(id_ + ": hits and misses do not add up (F60)");
}

}  // namespace cistern
