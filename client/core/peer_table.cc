#include "client/core/peer_table.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/window.h"
#include "core/chain.h"
#include "core/error_of.h"

namespace cistern {
namespace {

std::string NotesOf(const ClientPeer& peer) {
  return std::string(absl::StripSuffix(peer.attempt_notes, "; "));
}

// Without memory for its words a reason is left out.
template <typename... Parts>
void Say(std::string& to, const Parts&... parts) {
  try {
    to = absl::StrCat(parts...);
  } catch (const std::bad_alloc&) {
    to.clear();
  }
}

}  // namespace

PeerTable::PeerTable(const ClientCoreOptions& options, Clock& clock, Transport& transport, Random& random,
                     ClientCounters& counters)
    : options_(options), clock_(clock), transport_(transport), random_(random), counters_(counters) {
  hello_.key_algorithm = kKeyAlgorithm;
  hello_.client_id = options.client_id != 0 ? options.client_id : random.Next() | 1;
}

void PeerTable::SetCredentials(std::string ticket, const ClusterId& cluster) {
  hello_.ticket = std::move(ticket);
  hello_.cluster = cluster;
}

// At or behind its place.
std::vector<std::pair<PeerId, uint32_t>>::iterator PeerTable::FindId(PeerId id) {
  return std::lower_bound(by_id_.begin(), by_id_.end(), std::pair{id, uint32_t{0}});
}

ClientPeer* PeerTable::ById(PeerId id) {
  const auto it = FindId(id);
  return it == by_id_.end() || it->first != id ? nullptr : peers_[it->second].get();
}

PartResult PeerTable::Admit(ClientPeer& peer, Nanos now) {
  if (now < peer.negative_until) {
    ++counters_.negative_skips;
    return PartResult::kPeerGone;
  }
  if (!peer.breaker.TryEnter(now)) {
    ++counters_.breaker_skips;
    return PartResult::kBreakerOpen;
  }
  if (peer.state != PeerState::kIdle) return PartResult::kOk;
  if (now < peer.retry_at || hello_.ticket.empty()) {
    ++counters_.negative_skips;
    return PartResult::kPeerGone;
  }
  peer.attempt = 0;
  peer.attempt_notes.clear();
  ++counters_.connect_attempts;
  TryAddresses(peer);
  return peer.state == PeerState::kIdle ? PartResult::kPeerGone : PartResult::kOk;
}

std::vector<PeerTable::Address> PeerTable::AddressesOf(const ClientPeer& peer) const {
  const auto named = [](const char* prefix, const std::string& address) {
    return address.starts_with("sim:") ? address : prefix + address;
  };
  std::vector<Address> list;
  const bool socket_only = options_.transport == "socket";
  const bool ucx_only = options_.transport == "ucx";
  if (!socket_only && !ucx_only && !peer.address.unix_name.empty()) {
    list.push_back({named("unix:", peer.address.unix_name), true, "unix socket found on this host"});
  }
  if (options_.fabric && !peer.address.fabric.empty() && (ucx_only || options_.transport == "auto")) {
    list.push_back({named("ucx:", peer.address.fabric), true, "both sides have a fabric address"});
  }
  if (ucx_only) return list;
  if (options_.transport != "map" && !peer.address.tcp.empty()) {
    list.push_back({named("tcp:", peer.address.tcp), !socket_only,
                    socket_only ? "--transport socket" : "reached over TCP"});
  }
  if (list.empty() && socket_only && !peer.address.unix_name.empty()) {
    list.push_back({named("unix:", peer.address.unix_name), false, "--transport socket, node offers no TCP"});
  }
  return list;
}

void PeerTable::TryAddresses(ClientPeer& peer) {
  const std::vector<Address> addresses = AddressesOf(peer);
  for (; peer.attempt < addresses.size(); ++peer.attempt) {
    ConnectOptions connect;
    connect.hello = hello_;
    connect.allow_map = addresses[peer.attempt].allow_map;
    if (connect.allow_map && options_.window != nullptr) connect.window = &options_.window->region();
    by_id_.reserve(by_id_.size() + 1);  // Nothing may fail between a connection and its row.
    const absl::StatusOr<PeerId> id = transport_.Connect(addresses[peer.attempt].name, connect);
    if (id.ok()) {
      peer.next_address = false;
      peer.state = PeerState::kConnecting;
      peer.id = *id;
      peer.heard_at = peer.silent_since = clock_.Now();
      by_id_.emplace(FindId(*id), *id, peer.slot);
      return;
    }
    peer.attempt_notes += addresses[peer.attempt].name + ": " + std::string(id.status().message()) + "; ";
  }
  Failed(peer,
         addresses.empty() ? "the node offers no address for transport " + options_.transport : NotesOf(peer),
         /*dead=*/true);
}

void PeerTable::CountFailure(ClientPeer& peer, Nanos now) {
  if (peer.breaker.Failure(now)) ++counters_.breaker_open;
}

void PeerTable::FoundDead(ClientPeer& peer, Nanos now) {
  peer.negative_until = std::max(peer.negative_until, now + options_.negative_ttl);
  if (now < peer.hint_at || !peer.listed) return;
  peer.hint_at = now + kHintAgainAfter;
  const auto known = [&](const GonePeer& gone) {
    return gone.incarnation == peer.incarnation && gone.node_id == peer.node;
  };
  if (std::any_of(gone_.begin(), gone_.end(), known)) return;  // Another shard of the process.
  bool taken = gone_.size() < kGonePeersMax;
  try {
    if (taken) gone_.push_back({peer.node, peer.incarnation});
  } catch (const std::bad_alloc&) {
    taken = false;
  }
  ++(taken ? counters_.peer_hints : counters_.peer_hints_dropped);
}

// Nothing is known against the peer: the next request tries again at once.
void PeerTable::FailedWithoutMemory(ClientPeer& peer) {
  Failed(peer, "out of memory while connecting", /*dead=*/false);
  peer.retry_at = 0;
}

void PeerTable::Failed(ClientPeer& peer, absl::string_view why, bool dead) {
  const Nanos now = clock_.Now();
  peer.state = PeerState::kIdle;
  peer.id = 0;
  peer.one_sided = false;
  peer.next_address = false;
  Say(peer.why_down, why);
  peer.retry_at = now + peer.backoff.Next(random_);
  if (dead) {
    ++counters_.connect_failures;
    CountFailure(peer, now);
    FoundDead(peer, now);
  }
  ReportFailed(peer);
}

const char* PeerTable::CheckAck(const ClientPeer& peer, const HelloAck& ack) const {
  if (ack.node_id != peer.node) return "another node answers there";
  if (ack.incarnation != peer.incarnation) return "another incarnation answers there; the map is behind";
  if (ack.shard != peer.shard || ack.shards != peer.shards) return "another shard answers there";
  const PeerPath* path = transport_.Path(peer.id);
  if (options_.transport == "map" && path != nullptr && !path->one_sided) return "the node refused the map";
  return nullptr;
}

void PeerTable::OnUp(PeerId id, const HelloAck& ack) {
  ClientPeer* peer = ById(id);
  if (peer == nullptr || peer->id != id) return;
  if (const char* wrong = CheckAck(*peer, ack); wrong != nullptr) {
    Fence(*peer, ErrorOf(absl::StatusCode::kUnavailable, wrong));
    return;
  }
  const PeerPath* path = transport_.Path(id);
  peer->state = PeerState::kUp;
  peer->one_sided = path != nullptr && path->one_sided;
  peer->retry_at = 0;
  ++counters_.connects;
  Heard(*peer);
  peer->came_up = any_up_ = true;
}

void PeerTable::OnDown(PeerId id, const absl::Status& why) {
  ClientPeer* peer = ById(id);
  if (const auto row = FindId(id); row != by_id_.end() && row->first == id) by_id_.erase(row);
  if (peer == nullptr || peer->id != id) return;
  if (peer->state == PeerState::kConnecting) {
    if (IsNoMemory(why)) return FailedWithoutMemory(*peer);
    ticket_refused_ |= absl::IsPermissionDenied(why);
    Say(peer->attempt_notes, peer->attempt_notes, why.message(), "; ");
    peer->id = 0;
    ++peer->attempt;
    peer->state = PeerState::kConnecting;
    peer->next_address = peer->listed;  // Not from inside the transport's callback.
    next_wake_ = 0;
    return;
  }
  ++counters_.peers_lost;
  if (fencing_ != id && !peer->requests.empty()) CountFailure(*peer, clock_.Now());
  Failed(*peer, why.message(), /*dead=*/false);
  if (fencing_ == id) peer->retry_at = 0;  // Cut by us: the node may be well, connect again at once.
}

void PeerTable::Heard(ClientPeer& peer) {
  const Nanos now = clock_.Now();
  peer.heard_at = peer.silent_since = now;
  peer.negative_until = 0;
  peer.breaker.Success();
  peer.backoff.Reset();
}

void PeerTable::OnDeadline(ClientPeer& peer, Nanos sent_at) {
  if (peer.heard_at > sent_at && sent_at != 0) return;  // It lives; it was only slow.
  const Nanos now = clock_.Now();
  CountFailure(peer, now);
  if (now - std::max(peer.heard_at, std::max(sent_at, peer.silent_since)) < kSilenceTells) return;
  FoundDead(peer, now);
}

void PeerTable::Fence(ClientPeer& peer, const absl::Status& why) {
  if (peer.id == 0) return;
  ++counters_.fences;
  const PeerId before = std::exchange(fencing_, peer.id);
  transport_.Fence(peer.id, why);
  fencing_ = before;
}

void PeerTable::Watch(ClientPeer& peer, Nanos now) {
  if (peer.requests.size() <= 1) peer.silent_since = now;  // Silence of an idle peer means nothing.
  next_wake_ = std::min(next_wake_, now + kPingAfter);
}

// Refused: its queue is full, so bytes are under way anyway. Without memory the next one tells.
void PeerTable::Ping(const ClientPeer& peer) {
  OutFrame ping;
  ping.type = FrameType::kPing;
  ping.request_id = kPingRequestId;
  try {
    transport_.Send(peer.id, ping).IgnoreError();
  } catch (const std::bad_alloc&) {
  }
}

bool PeerTable::Service(Nanos now) {
  if (now < next_wake_) return false;
  next_wake_ = kNever;
  bool did = false;
  for (uint32_t slot = 0; slot < peers_.size(); ++slot) {
    if (peers_[slot] == nullptr) continue;
    ClientPeer& peer = *peers_[slot];
    if (!peer.listed && peer.requests.empty()) {
      peers_[slot].reset();
      free_.push_back(slot);
      continue;
    }
    if (peer.next_address) {  // Cleared for a peer that left the map.
      try {
        TryAddresses(peer);
      } catch (const std::bad_alloc&) {
        FailedWithoutMemory(peer);
      }
      did = true;
    }
    if (peer.state != PeerState::kUp || peer.requests.empty()) continue;
    bool moving = false;  // Bytes under way keep a PONG from coming through; the deadline watches those.
    for (const Request* r : peer.requests) moving |= r->receiving || r->unsent_payload;
    if (!moving && now - peer.silent_since >= kSilentMax) {
      ++counters_.silent_peers;
      CountFailure(peer, now);
      FoundDead(peer, now);
      Fence(peer, ErrorOf(absl::StatusCode::kUnavailable, "nothing heard for kSilentMax"));
      did = true;
      continue;
    }
    const Nanos ping_at = std::max(peer.silent_since, peer.ping_at) + kPingAfter;
    if (now >= ping_at) {
      Ping(peer);
      ++counters_.pings;
      peer.ping_at = now;
      did = true;
    }
    next_wake_ = std::min(next_wake_, std::max(peer.silent_since, peer.ping_at) + kPingAfter);
  }
  return did;
}

void PeerTable::TakeUp(std::vector<uint32_t>& out) {
  out.clear();
  if (!any_up_) return;
  MakeRoom(out, peers_.size());
  any_up_ = false;
  for (const auto& peer : peers_) {
    if (peer != nullptr && std::exchange(peer->came_up, false)) out.push_back(peer->slot);
  }
}

void PeerTable::ReportFailed(ClientPeer& peer) {
  for (const Request* r : peer.requests) peer.failed_request = std::max(peer.failed_request, r->id);
  any_failed_ |= peer.failed_request != 0;
}

void PeerTable::TakeFailed(std::vector<Failure>& out) {
  out.clear();
  if (!any_failed_) return;
  MakeRoom(out, peers_.size());
  any_failed_ = false;
  for (const auto& peer : peers_) {
    if (peer == nullptr || peer->failed_request == 0) continue;
    out.push_back({peer->slot, std::exchange(peer->failed_request, 0)});
  }
}

std::vector<PeerRow> PeerTable::Rows() const {
  std::vector<PeerRow> rows;
  for (const auto& slots : slots_of_node_) {
    for (const uint32_t slot : slots) {
      const ClientPeer& peer = *peers_[slot];
      PeerRow row{.node = peer.node,
                  .incarnation = peer.incarnation,
                  .shard = peer.shard,
                  .state = "down",
                  .path = {},
                  .why = {}};
      if (const PeerPath* path = peer.state == PeerState::kUp ? transport_.Path(peer.id) : nullptr;
          path != nullptr) {
        row.state = "up";
        row.path = *path;
        const std::vector<Address> addresses = AddressesOf(peer);
        row.why = path->why;
        if (peer.attempt < addresses.size())
          row.why += std::string(row.why.empty() ? "" : "; ") + addresses[peer.attempt].why;
        if (!peer.attempt_notes.empty()) row.why += "; before: " + NotesOf(peer);
      } else {
        if (peer.state == PeerState::kConnecting) row.state = "connecting";
        if (peer.breaker.IsOpen()) row.state = "breaker-open";
        row.why = peer.why_down;
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace cistern
