#include "router/router.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr double kWeightMin = 1.0 / 1024;
constexpr char kDefaultName[] = "default";

// Who owns runs under `map`: what placement takes from it.
std::vector<OwnerSet::Owner> Owners(const ClusterMap& map) {
  std::vector<OwnerSet::Owner> owners;
  for (const NodeEntry& node : map.nodes) {
    if (node.state == NodeState::kActive) owners.push_back({node.id, node.weight});
  }
  return owners;
}

template <typename Nodes>
auto LowerBound(Nodes& nodes, std::string_view id) {
  return std::lower_bound(nodes.begin(), nodes.end(), id, [](const NodeEntry& node, std::string_view wanted) {
    return wanted.compare(node.id) > 0;
  });
}

void Upsert(ClusterMap& map, NodeEntry entry) {
  const auto at = LowerBound(map.nodes, entry.id);
  const bool known = at != map.nodes.end() && at->id == entry.id;
  std::swap(known ? *at : *map.nodes.emplace(at), entry);
}

}  // namespace

Router::Router(const RouterConfig& config, const ClusterKey& key, StateStore& store, Clock& clock,
               Random& random)
    : config_(config),
      key_(key),
      store_(store),
      clock_(clock),
      random_(random),
      started_(clock.Now()),
      last_tick_(started_),
      listens_since_(started_) {}

absl::StatusOr<std::unique_ptr<Router>> Router::Create(const RouterConfig& config, const ClusterKey& key,
                                                       StateStore& store, Clock& clock, Random& random) {
  std::unique_ptr<Router> router(new Router(config, key, store, clock, random));
  for (const char* counter : kRouterCounters) router->counters_.emplace(counter, 0);
  CISTERN_RETURN_IF_ERROR(router->Load());
  return router;
}

absl::Status Router::Load() {
  CISTERN_ASSIGN_OR_RETURN(const auto values, store_.LoadAll());
  if (values.empty()) {
    ClusterMap first;
    first.run_blocks_cap = config_.run_blocks_cap;
    if (config_.cluster) {
      first.cluster = *config_.cluster;
    } else {
      for (uint8_t& byte : first.cluster.bytes) byte = static_cast<uint8_t>(random_.Next());
    }
    return Publish(std::move(first), 0, {});
  }
  CISTERN_ASSIGN_OR_RETURN(RouterState state, DecodeState(values));
  if (config_.cluster && *config_.cluster != state.map.cluster) {
    return absl::FailedPreconditionError(absl::StrCat("the router's state belongs to cluster ",
                                                      ToHex(state.map.cluster), ", not to ",
                                                      ToHex(*config_.cluster)));
  }
  map_ = std::move(state.map);
  last_incarnation_ = state.last_incarnation;
  // The clock of the last life means nothing now: nodes get time to call in, moves their whole time again.
  for (auto& [id, identity] : state.nodes) {
    Node& node = nodes_[id];
    node.identity = std::move(identity);
    node.deadline = started_ + config_.restart_grace;
  }
  for (const OwnerSet& move : map_.open_moves) moves_.push_back({move, started_ + config_.move_open});
  owners_may_hold_blocks_ = !map_.nodes.empty();
  return absl::OkStatus();
}

const NodeEntry* Router::FindEntry(std::string_view id) const {
  const auto at = LowerBound(map_.nodes, id);
  return at != map_.nodes.end() && at->id == id ? &*at : nullptr;
}

absl::Status Router::CheckIdentity(const RegisterRequest& request) const {
  if (!SameProof(request.proof, RegisterProof(key_, request))) {
    return absl::PermissionDeniedError(
        absl::StrCat(request.node_id, ": wrong proof; its cluster key is not the router's (--cluster-key)"));
  }
  if (request.cluster && *request.cluster != map_.cluster) {
    return absl::FailedPreconditionError(absl::StrCat(
        request.node_id, " belongs to cluster ", ToHex(*request.cluster), ", this router to ",
        ToHex(map_.cluster),
        "; to keep what the node holds, start the router with an empty --data-dir and --cluster-id ",
        ToHex(*request.cluster), "; to begin anew, give the node an empty --data-dir"));
  }
  const auto node = nodes_.find(request.node_id);
  if (node != nodes_.end()) {
    const auto& old = node->second.identity.old_nonces;
    if (std::find(old.begin(), old.end(), request.boot_nonce) != old.end()) {
      return absl::AbortedError(absl::StrCat(request.node_id, " is served by a newer process, incarnation ",
                                             FindEntry(request.node_id)->incarnation));
    }
  }
  return absl::OkStatus();
}

NodeIdentity Router::IdentityFor(const RegisterRequest& request) const {
  NodeIdentity identity;
  identity.boot_nonce = request.boot_nonce;
  identity.place = request.place;
  const auto node = nodes_.find(request.node_id);
  if (node == nodes_.end()) return identity;
  identity.old_nonces = node->second.identity.old_nonces;
  identity.draining = node->second.identity.draining;
  if (node->second.identity.boot_nonce != request.boot_nonce) {
    identity.old_nonces.push_back(node->second.identity.boot_nonce);
    if (identity.old_nonces.size() > kOldNoncesMax) identity.old_nonces.erase(identity.old_nonces.begin());
  }
  return identity;
}

NodeEntry Router::EntryFor(const RegisterRequest& request, uint64_t& last_incarnation) const {
  NodeEntry entry;
  entry.id = request.node_id;
  entry.weight = request.weight > 0 ? request.weight : static_cast<double>(request.ram_bytes) / kGib;
  entry.weight = std::clamp(entry.weight, kWeightMin, kWeightMax);
  entry.shards = request.shards;
  const NodeEntry* known = FindEntry(request.node_id);
  const bool draining = known != nullptr && nodes_.find(request.node_id)->second.identity.draining;
  entry.state = draining ? NodeState::kDraining : NodeState::kActive;
  if (known != nullptr && nodes_.find(request.node_id)->second.identity.boot_nonce == request.boot_nonce) {
    entry.incarnation = known->incarnation;
  } else if (known == nullptr && request.held_incarnation > 0) {
    // This router has lost its state; the process has not changed, so neither does its incarnation.
    entry.incarnation = request.held_incarnation;
    last_incarnation = std::max(last_incarnation, request.held_incarnation);
  } else {
    last_incarnation = std::max(last_incarnation, request.held_incarnation) + 1;
    entry.incarnation = last_incarnation;
  }
  return entry;
}

absl::Status Router::MakeRoomIn(ClusterMap& next, std::vector<StateChange>& changes) const {
  if (next.nodes.size() < kNodesMax) return absl::OkStatus();
  auto oldest = next.nodes.end();
  for (auto it = next.nodes.begin(); it != next.nodes.end(); ++it) {
    if (it->state != NodeState::kGone) continue;
    if (oldest == next.nodes.end() || nodes_.at(it->id).deadline < nodes_.at(oldest->id).deadline)
      oldest = it;
  }
  if (oldest == next.nodes.end()) {
    return absl::ResourceExhaustedError(absl::StrCat("the cluster has kNodesMax = ", kNodesMax, " nodes"));
  }
  changes.push_back(ForgetNode(oldest->id));
  next.nodes.erase(oldest);
  return absl::OkStatus();
}

absl::StatusOr<Registration> Router::Register(const RegisterRequest& request) {
  CISTERN_RETURN_IF_ERROR(ValidateRegister(request));
  if (absl::Status status = CheckIdentity(request); !status.ok()) {
    Count("registrations_refused_total");
    return status;
  }
  CISTERN_RETURN_IF_ERROR(CheckAlone(request));
  uint64_t last_incarnation = last_incarnation_;
  NodeEntry entry = EntryFor(request, last_incarnation);
  NodeIdentity identity = IdentityFor(request);
  const NodeEntry* known = FindEntry(request.node_id);
  const bool same_process = known != nullptr && known->incarnation == entry.incarnation;
  const Registration registration{map_.cluster, entry.incarnation, kHeartbeatMs};
  if (known == nullptr || *known != entry) {
    ClusterMap next = map_;
    std::vector<StateChange> changes = {EncodeNode(request.node_id, identity)};
    if (known == nullptr) CISTERN_RETURN_IF_ERROR(MakeRoomIn(next, changes));
    Upsert(next, std::move(entry));
    CISTERN_RETURN_IF_ERROR(Publish(std::move(next), last_incarnation, std::move(changes)));
  }
  Node& node = nodes_[request.node_id];
  node.identity = std::move(identity);
  Heard(node, clock_.Now());
  if (!same_process) {
    node.claims.clear();
    node.stats = {};
    node.shard_last_poll_ms_ago.clear();
  }
  Count("registrations_total");
  return registration;
}

absl::StatusOr<HeartbeatResult> Router::Heartbeat(const HeartbeatRequest& request) {
  if (!SameProof(request.proof, HeartbeatProof(key_, request.node_id, request.incarnation))) {
    Count("heartbeats_refused_total");
    return absl::PermissionDeniedError(absl::StrCat(request.node_id, ": wrong heartbeat proof"));
  }
  const NodeEntry* entry = FindEntry(request.node_id);
  if (entry == nullptr || entry->incarnation != request.incarnation) {
    Count("heartbeats_unknown_total");
    return HeartbeatResult{false, map_.epoch};
  }
  Node& node = nodes_.find(request.node_id)->second;
  const Nanos now = clock_.Now();
  if (entry->state == NodeState::kGone) {
    // It was paused or cut off. Its blocks are still verified on every read, so it keeps them; but what it
    // says of itself may be from before, so only its next heartbeat's figures count.
    NodeEntry back = *entry;
    back.state = node.identity.draining ? NodeState::kDraining : NodeState::kActive;
    ClusterMap next = map_;
    Upsert(next, std::move(back));
    CISTERN_RETURN_IF_ERROR(Publish(std::move(next), last_incarnation_, {}));
    Count("nodes_rejoined_total");
  } else {
    node.stats = request.stats;
    node.shard_last_poll_ms_ago = request.shard_last_poll_ms_ago;
  }
  node.last_heartbeat = now;
  Heard(node, now);
  return HeartbeatResult{true, map_.epoch};
}

std::vector<Router::OpenMove> Router::MovesAfter(const ClusterMap& next) const {
  std::vector<OpenMove> moves;
  const std::vector<OwnerSet::Owner> before = Owners(map_);
  const std::vector<OwnerSet::Owner> after = Owners(next);
  if (before != after && !before.empty() && owners_may_hold_blocks_) {
    moves.push_back({OwnerSet{map_.epoch, before}, clock_.Now() + config_.move_open});
  }
  for (const OpenMove& move : moves_) {
    // Asking the same owners twice tells nothing new.
    if (move.owners.owners == after || (!moves.empty() && move.owners.owners == moves[0].owners.owners))
      continue;
    if (moves.size() < kOpenMovesMax) moves.push_back(move);
  }
  return moves;
}

absl::Status Router::Publish(ClusterMap next, uint64_t last_incarnation, std::vector<StateChange> changes) {
  std::vector<OpenMove> moves = MovesAfter(next);
  next.epoch = map_.epoch + 1;
  next.open_moves.clear();
  for (const OpenMove& move : moves) next.open_moves.push_back(move.owners);
  changes.push_back(EncodeMap(next, last_incarnation));
  if (absl::Status status = store_.Commit(changes); !status.ok()) {
    Count("store_errors_total");
    return absl::UnavailableError(
        absl::StrCat("the router cannot write its state: ", std::string(status.message())));
  }
  std::erase_if(nodes_, [&](const auto& node) {
    const auto at = LowerBound(next.nodes, node.first);
    return at == next.nodes.end() || at->id != node.first;
  });
  for (const NodeEntry& entry : next.nodes) nodes_[entry.id];
  map_ = std::move(next);
  moves_ = std::move(moves);
  last_incarnation_ = last_incarnation;
  return absl::OkStatus();
}

void Router::ExpireSilent(Nanos now) {
  ClusterMap next = map_;
  uint64_t expired = 0;
  uint64_t hinted = 0;  // Of these, nodes whose time a report of others has cut short.
  for (NodeEntry& entry : next.nodes) {
    const Node& node = nodes_.find(entry.id)->second;
    if (entry.state == NodeState::kGone || node.deadline > now) continue;
    entry.state = NodeState::kGone;
    ++expired;
    hinted += node.deadline < node.heard_at + config_.node_silent_max;
  }
  // On a store error the same nodes are tried again by the next tick.
  if (expired == 0 || !Publish(std::move(next), last_incarnation_, {}).ok()) return;
  Count("nodes_expired_total", expired);
  if (hinted > 0) Count("nodes_expired_by_hint_total", hinted);
}

void Router::CloseOldMoves(Nanos now) {
  std::vector<OpenMove> open = moves_;
  std::erase_if(open,
                [&](const OpenMove& move) { return move.closes <= now && !NamesDraining(move.owners); });
  if (open.size() == moves_.size()) return;
  std::vector<OpenMove> before = std::exchange(moves_, std::move(open));
  if (!Publish(map_, last_incarnation_, {}).ok()) moves_ = std::move(before);
}

Nanos Router::Tick() {
  const Nanos now = clock_.Now();
  if (now - last_tick_ > kTickGapMax) {
    // The router itself stood still (stopped, or the machine slept): heartbeats could not reach it, so nobody
    // is late yet.
    for (auto& [id, node] : nodes_) {
      node.deadline = std::max(node.deadline, now + config_.node_silent_max);
      if (node.heard_at > 0) node.heard_at = now;
    }
    listens_since_ = now;
    Count("pauses_total");
  }
  last_tick_ = now;
  ExpireSilent(now);
  CloseOldMoves(now);
  Nanos next = now + kTickMax;
  for (const NodeEntry& entry : map_.nodes) {
    const Nanos deadline = nodes_.find(entry.id)->second.deadline;
    if (entry.state != NodeState::kGone && deadline > now) next = std::min(next, deadline);
  }
  for (const OpenMove& move : moves_) {
    if (move.closes > now) next = std::min(next, move.closes);
  }
  return next;
}

void Router::Heard(Node& node, Nanos now) {
  node.heard_at = now;
  node.deadline = now + config_.node_silent_max;
}

std::array<uint8_t, 32> Router::NamespaceSecret(std::string_view name_space) const {
  std::string data(reinterpret_cast<const char*>(map_.cluster.bytes.data()), map_.cluster.bytes.size());
  return key_.Derive("namespace", data.append(name_space));
}

absl::StatusOr<TicketGrant> Router::IssueTicket(std::string_view tenant, uint32_t rights,
                                                int64_t now_unix_s) {
  constexpr uint32_t kAllRights = kRightRead | kRightWrite | kRightAdmin;
  if (!tenant.empty() && tenant != kDefaultName) {
    return absl::NotFoundError(
        absl::StrCat("tenant ", std::string(tenant.substr(0, kNodeIdBytesMax)), " does not exist"));
  }
  if ((rights & ~kAllRights) != 0) return absl::InvalidArgumentError("rights: unknown bits");
  Ticket ticket;
  ticket.cluster = map_.cluster;
  ticket.rights = rights == 0 ? kRightRead | kRightWrite : rights;
  ticket.expires_unix_s = now_unix_s + config_.ticket_life_seconds;
  ticket.nonce = random_.Next();
  NoteClient();
  Count("tickets_total");
  return TicketGrant{map_.cluster, SealTicket(ticket, key_), NamespaceSecret(ticket.name_space),
                     ticket.expires_unix_s};
}

ClusterStatus Router::Status() {
  const Nanos now = clock_.Now();
  ClusterStatus status;
  status.router_id = config_.router_id;
  status.address = config_.address;
  status.pid = config_.pid;
  status.uptime_ms = static_cast<uint64_t>((now - started_) / kMillisecond);
  status.map = map_;
  status.counters = counters_;
  for (const NodeEntry& entry : map_.nodes) {
    const Node& node = nodes_.find(entry.id)->second;
    const Nanos since = node.last_heartbeat > 0 ? node.last_heartbeat : started_;
    status.nodes.push_back({entry, node.stats, static_cast<uint64_t>((now - since) / kMillisecond),
                            node.shard_last_poll_ms_ago});
  }
  return status;
}

}  // namespace cistern
