#include "cache_node/node_shard.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/disk_tier.h"
#include "cache_node/hbm_tier.h"
#include "core/chain.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

int64_t SystemUnixNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<NodeShard>> NodeShard::Create(NodeShardOptions options, Clock& clock,
                                                             Transport& transport, Random& random) {
  const uint64_t slab_bytes = SlabPool::SlabBytes(options.ram_bytes);
  if (options.ram_bytes < slab_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("ram of shard ", options.shard, " is ", options.ram_bytes,
                                                   " bytes; it needs at least one slab of ", slab_bytes));
  }
  CISTERN_RETURN_IF_ERROR(RamTier::CheckPolicy(options.policy));
  if (options.unix_now == nullptr) options.unix_now = SystemUnixNow;
  CISTERN_ASSIGN_OR_RETURN(MemoryRegion arena,
                           MemoryRegion::Create("cistern-arena", SlabPool::RegionBytes(options.ram_bytes),
                                                /*seal_future_write=*/true));
  return std::unique_ptr<NodeShard>(
      new NodeShard(std::move(options), clock, transport, random, std::move(arena)));
}

NodeShard::NodeShard(NodeShardOptions options, Clock& clock, Transport& transport, Random& random,
                     MemoryRegion arena)
    : options_(std::move(options)),
      clock_(clock),
      transport_(transport),
      random_(random),
      arena_(std::move(arena)),
      ram_(arena_, options_.ram_bytes, options_.policy, random_, counters_),
      puts_(random_),
      cluster_(options_.cluster),
      incarnation_(options_.incarnation) {
  transport_.SetHandler(this);
}

NodeShard::~NodeShard() { Shutdown(absl::UnavailableError("node is shutting down")); }

void NodeShard::Shutdown(const absl::Status& why) {
  std::vector<PeerId> ids;
  for (const auto& [id, peer] : peers_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());  // The same order in every run of a simulation.
  for (const PeerId id : ids) transport_.Fence(id, why);
  to_fence_.clear();
}

void NodeShard::SetIdentity(const ClusterId& cluster, uint64_t incarnation) {
  const bool same = cluster_ == cluster && incarnation_ == incarnation;
  cluster_ = cluster;
  incarnation_ = incarnation;
  if (!same) Shutdown(absl::UnavailableError(absl::StrCat(options_.node_id, " has a new incarnation")));
}

bool NodeShard::Poll() {
  bool any = transport_.Poll();
  PollDrops();
  HandleBehindDrops();
  drop_looks_ = kDropLooksPerTurn;
  any |= AdvancePulls();
  pull_budget_ = kPullBytesPerTurn;
  any |= PollHbm();
  any |= PollDisk();
  const Nanos now = clock_.Now();
  ram_.AdvanceTo(RamTier::TickOf(now));
  if (SweepWake() <= now) SweepExpired(now);
  if (TimerWake() <= now || !to_fence_.empty()) {
    RunTimers(now);
    any = true;
  }
  RunFences();
  return any;
}

Nanos NodeShard::NextWake() const {
  if (!pull_queue_.empty() || !to_fence_.empty() || !drops_.empty() || !behind_drops_.empty()) return 0;
  return std::min({TimerWake(), DiskWake(), HbmWake(), SweepWake()});
}

Nanos NodeShard::TimerWake() const {
  return std::min({leases_.next_end(), puts_.next_deadline(), next_ticket_end_});
}

void NodeShard::RunTimers(Nanos now) {
  while (const auto row = leases_.Due(now)) {
    if (leases_.row(*row).kind == LeaseTable::Kind::kHold) {
      FenceSoon(leases_.row(*row).peer, absl::DeadlineExceededError("peer does not take what it asked for"));
      leases_.Renew(*row, now + kSecond);  // The fence ends it.
    } else {
      ++counters_.leases_expired;
      EndRow(*row);
    }
  }
  ExpirePuts(now);
  if (next_ticket_end_ > now) return;
  next_ticket_end_ = kNever;
  std::vector<PeerId> ended;
  for (const auto& [id, peer] : peers_) {
    if (peer.ticket_end <= now) {
      ended.push_back(id);
    } else {
      next_ticket_end_ = std::min(next_ticket_end_, peer.ticket_end);
    }
  }
  std::sort(ended.begin(), ended.end());
  for (const PeerId id : ended) {
    ++counters_.tickets_expired;
    FenceSoon(id, absl::PermissionDeniedError("ticket has ended"));
  }
}

void NodeShard::FenceSoon(PeerId peer, absl::Status why) { to_fence_.emplace_back(peer, std::move(why)); }

void NodeShard::RunFences() {
  for (size_t i = 0; i < to_fence_.size(); ++i) {  // Fencing may ask for more.
    const auto [peer, why] = to_fence_[i];
    if (!peers_.contains(peer)) continue;
    ++counters_.peers_fenced;
    transport_.Fence(peer, why);
  }
  to_fence_.clear();
}

absl::Status NodeShard::OnHello(PeerId peer, const Hello& hello, HelloAck& ack,
                                std::vector<const MemoryRegion*>& regions) {
  const auto refuse = [this](absl::Status why) {
    ++counters_.peers_refused;
    return why;
  };
  if (!cluster_.has_value()) {
    return refuse(absl::UnavailableError(absl::StrCat(options_.node_id, " is not registered yet")));
  }
  if (hello.version_min > kWireVersionMax || hello.version_max < kWireVersionMin) {
    ++counters_.version_refused;
    return refuse(absl::FailedPreconditionError(absl::StrCat("wire versions: node speaks ", kWireVersionMin,
                                                             " to ", kWireVersionMax, ", client ",
                                                             hello.version_min, " to ", hello.version_max)));
  }
  if (hello.key_algorithm != kKeyAlgorithm) {
    ++counters_.algorithm_refused;
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("key algorithm: node uses ", kKeyAlgorithm, ", client ", hello.key_algorithm)));
  }
  if (hello.cluster != *cluster_) {
    return refuse(absl::PermissionDeniedError(
        absl::StrCat("cluster ", ToHex(hello.cluster, 4), " asked of a node of ", ToHex(*cluster_, 4))));
  }
  const int64_t unix_now = options_.unix_now();
  absl::StatusOr<Ticket> ticket = OpenTicket(hello.ticket, options_.cluster_key, *cluster_, unix_now);
  if (!ticket.ok()) return refuse(ticket.status());
  if (peers_.size() >= kPeersMax)
    return refuse(absl::ResourceExhaustedError("kPeersMax clients are connected"));

  const TenantIndex tenant = TenantOf(*ticket);
  if (tenant == kNoTenant) return refuse(absl::ResourceExhaustedError("kTenantsMax tenants are known"));

  Peer& state = peers_[peer];
  state.tenant = tenant;
  state.rights = ticket->rights;
  state.client_id = hello.client_id;
  // The wall clock counts only here; from now on the boot clock does (F46).
  constexpr int64_t kTicketSecondsMax = 10LL * 365 * 86400;
  const int64_t left =
      std::clamp<int64_t>(ticket->expires_unix_s - unix_now, -kTicketSkewSeconds, kTicketSecondsMax);
  state.ticket_end = clock_.Now() + (left + kTicketSkewSeconds) * kSecond;
  next_ticket_end_ = std::min(next_ticket_end_, state.ticket_end);
  ++counters_.peers_accepted;

  ack.version = std::min<uint16_t>(hello.version_max, kWireVersionMax);
  ack.node_id = options_.node_id;
  ack.incarnation = incarnation_;
  ack.shard = options_.shard;
  ack.shards = options_.shards;
  if ((state.rights & kRightRead) != 0) {  // Whoever may not read gets no mapping either.
    ack.regions.push_back({.id = 0, .bytes = arena_.bytes()});
    regions.push_back(&arena_);
  }
  return absl::OkStatus();
}

void NodeShard::OnPeerUp(PeerId, const HelloAck&) {}  // A shard connects to nobody.

void NodeShard::OnPeerDown(PeerId peer, const absl::Status&) {
  if (peers_.erase(peer) == 0) return;
  EndDropsOf(peer);
  while (const auto row = leases_.AnyOf(peer)) EndRow(*row);
  DropFramesOf(peer);
  while (const auto put = puts_.AnyOf(peer)) {
    ++counters_.puts_abandoned;
    AbandonPut(*put);
  }
}

void NodeShard::OnSent(PeerId, uint64_t cookie) {
  if (const auto row = leases_.FindHold(cookie)) EndRow(*row);
}

void NodeShard::OnFrame(PeerId peer, const InFrame& frame) {
  const auto it = peers_.find(peer);
  if (it == peers_.end() || WaitsForDrop(peer, it->second, frame)) return;
  const Peer state = it->second;
  ram_.AdvanceTo(Tick());
  Handle(peer, state, frame);
}

void NodeShard::Handle(PeerId peer, const Peer& state, const InFrame& frame) {
  const FrameHeader& header = frame.header;
  switch (header.type) {
    case FrameType::kPing:  // Asked while requests are out: does this shard's loop still turn?
      return SendOrFence(
          peer,
          OutFrame{.type = FrameType::kPong, .request_id = header.request_id, .body = {}, .payload = {}});
    case FrameType::kLookup:
      if (Allowed(peer, state, header, kRightRead)) Lookup(peer, frame);
      return;
    case FrameType::kPlan:
      if (Allowed(peer, state, header, kRightRead)) Plan(peer, frame);
      return;
    case FrameType::kRead:
      if (Allowed(peer, state, header, kRightRead)) Read(peer, frame);
      return;
    case FrameType::kRenew:
      if (Allowed(peer, state, header, kRightRead)) Renew(peer, frame);
      return;
    case FrameType::kRelease:
      return Release(peer, frame);
    case FrameType::kOffer:
      if (Allowed(peer, state, header, kRightWrite)) Offer(peer, frame);
      return;
    case FrameType::kPut:
      if (Allowed(peer, state, header, kRightWrite)) Put(peer, frame);
      return;
    case FrameType::kAbort:
      return Abort(peer, frame);
    case FrameType::kNote:
      if (Allowed(peer, state, header, kRightWrite)) Note(peer, frame);
      return;
    case FrameType::kAgree:
      if (Allowed(peer, state, header, kRightRead)) Agree(peer, frame);
      return;
    case FrameType::kStats:
      return SendStats(peer, frame);
    case FrameType::kDrop:
      return Drop(peer, state, frame);
    case FrameType::kQuota:
      if (Allowed(peer, state, header, kRightAdmin)) Quota(peer, frame);
      return;
    default:
      ++counters_.bad_frames;
      ReplyError(peer, header.request_id,
                 absl::InvalidArgumentError(
                     absl::StrCat("a node takes no frame of type ", static_cast<int>(header.type))));
  }
}

bool NodeShard::Allowed(PeerId peer, const Peer& state, const FrameHeader& header, uint32_t right) {
  if ((state.rights & right) != 0) return true;
  ++counters_.denied_requests;
  ReplyError(peer, header.request_id, absl::PermissionDeniedError("ticket lacks the right for this request"));
  return false;
}

void NodeShard::ReplyError(PeerId peer, uint64_t request_id, const absl::Status& status) {
  if (request_id == 0) return;  // Nobody waits.
  Reply(peer, FrameType::kError, request_id,
        ErrorBody{.code = status.code(), .message = std::string(status.message())});
}

void NodeShard::SendOrFence(PeerId peer, const OutFrame& frame) {
  const absl::Status sent = transport_.Send(peer, frame);
  if (sent.ok()) return;
  if (const auto row = leases_.FindHold(frame.cookie)) EndRow(*row);
  // A peer that lets so many replies wait does not read; without its answer it would run into its deadline.
  if (absl::IsResourceExhausted(sent)) return FenceSoon(peer, sent);
  // Nor may it wait for an answer that no frame holds. An error's own answer always fits.
  if (!absl::IsInvalidArgument(sent) || frame.type == FrameType::kError) return;
  ++counters_.bad_frames;
  ReplyError(peer, frame.request_id,
             absl::InvalidArgumentError(absl::StrCat("the answer does not fit into one frame (",
                                                     sent.message(), "); ask for less at a time")));
}

}  // namespace cistern
