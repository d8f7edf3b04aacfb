#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/make_room.h"
#include "core/status_macros.h"
#include "transport/socket_address.h"
#include "transport/ucx/ucx_transport.h"

// How a connection comes and goes. Endpoints come from addresses alone, report errors, and are closed by
// force exactly once, outside of UCX's callbacks.
namespace cistern {
namespace {

constexpr char kPrefix[] = "ucx:";

absl::StatusOr<SocketAddress> ParseFabricAddress(const std::string& address) {
  if (!address.starts_with(kPrefix)) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", address, "\": want ucx:HOST:PORT"));
  }
  return SocketAddress::Parse("tcp:" + address.substr(sizeof(kPrefix) - 1));
}

// Whether an address is one of this machine's, asked of a socket that is thrown away. UCX must not be asked:
// it tries another port for ever when its RDMA connection manager has no such address and the port is 0.
bool IsOfThisMachine(const SocketAddress& address) {
  sockaddr_storage any_port{};
  std::memcpy(&any_port, address.raw(), std::min<size_t>(address.raw_bytes(), sizeof(any_port)));
  if (any_port.ss_family == AF_INET) reinterpret_cast<sockaddr_in*>(&any_port)->sin_port = 0;
  if (any_port.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(&any_port)->sin6_port = 0;
  UniqueFd fd;
  fd.Reset(socket(any_port.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd.valid() && bind(fd.get(), reinterpret_cast<const sockaddr*>(&any_port), address.raw_bytes()) == 0;
}

constexpr char kWantsOwnAddress[] = " (it has to be an address of a fabric device of this machine)";

}  // namespace

absl::StatusOr<std::string> UcxTransport::Listen(const std::string& address) {
  CISTERN_CHECK(handler_ != nullptr);
  CISTERN_ASSIGN_OR_RETURN(const SocketAddress parsed, ParseFabricAddress(address));
  if (!IsOfThisMachine(parsed))
    return absl::InvalidArgumentError(
        absl::StrCat("listening on ", address, ": no address of ours", kWantsOwnAddress));
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = parsed.raw();
  params.sockaddr.addrlen = parsed.raw_bytes();
  params.conn_handler.cb = OnConnect;
  params.conn_handler.arg = this;
  ucp_listener_h listener = nullptr;
  if (const ucs_status_t status = ucp_listener_create(worker_, &params, &listener); status != UCS_OK) {
    return UcxError(status, absl::StrCat("listening on ", address, kWantsOwnAddress));
  }
  listeners_.push_back(listener);
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (const ucs_status_t status = ucp_listener_query(listener, &attributes); status != UCS_OK)
    return UcxError(status, "the listener's address");
  return kPrefix + SocketAddress::FromRaw(attributes.sockaddr).substr(sizeof("tcp:") - 1);
}

void UcxTransport::OnConnect(ucp_conn_request_h request, void* transport) noexcept {
  auto& self = *static_cast<UcxTransport*>(transport);
  ++self.counters_.accepted;
  self.pending_.push_back(request);
  self.Wake();
}

absl::StatusOr<UcxPeer*> UcxTransport::NewPeer(bool accepted) {
  if (peers_.size() >= context_->options().peers_max)
    return absl::ResourceExhaustedError(absl::StrCat("at most ", context_->options().peers_max, " peers"));
  if (next_id_ == 0) return absl::ResourceExhaustedError("peer ids are used up");
  auto made = std::make_unique<UcxPeer>(this, next_id_, accepted);
  // A list of peers that each is in once, at most, has room for all of them.
  MakeRoom(doomed_, peers_.size() + 1);
  MakeRoom(unposted_, 2 * (peers_.size() + 1));  // While it is worked off, some are in it again.
  MakeRoom(failed_, peers_.size() + 1);
  MakeRoom(graveyard_, peers_.size() + 1);
  UcxPeer* const peer = peers_.emplace(next_id_, std::move(made)).first->second.get();
  ++next_id_;
  if (accepted) {
    peer->state = State::kAwaitHello;
    ++unauthenticated_;
  }
  peer->path.kind = PathKind::kUcx;
  peer->deadline = clock_.Now() + kHandshakeDeadline;
  if (peer->deadline < next_check_) {
    next_check_ = peer->deadline;
    ArmTimer();
  }
  return peer;
}

absl::Status UcxTransport::OpenEndpoint(UcxPeer& peer, ucp_ep_params_t& params) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnError;
  params.err_handler.arg = &peer;
  if (const ucs_status_t status = ucp_ep_create(worker_, &params, &peer.ep); status != UCS_OK) {
    peer.ep = nullptr;
    return UcxError(status, "opening an endpoint");
  }
  by_endpoint_[peer.ep] = &peer;
  return absl::OkStatus();
}

bool UcxTransport::AcceptPending() {
  if (pending_.empty()) return false;
  const std::vector<ucp_conn_request_h> requests = std::move(pending_);
  pending_.clear();
  for (ucp_conn_request_h request : requests) {
    absl::StatusOr<UcxPeer*> peer = absl::ResourceExhaustedError("too many without HELLO");
    if (unauthenticated_ < kPendingConnectsMax) peer = NewPeer(true);
    if (!peer.ok()) {
      ++counters_.peers_refused;
      ucp_listener_reject(listeners_[0], request);
      continue;
    }
    ucp_conn_request_attr_t attributes{};
    attributes.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
    if (ucp_conn_request_query(request, &attributes) == UCS_OK)
      (*peer)->remote = SocketAddress::FromRaw(attributes.client_address);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request;
    if (const absl::Status opened = OpenEndpoint(**peer, params); !opened.ok()) Down(**peer, opened);
  }
  // UCX's thread found the worker busy meanwhile, and what it had for these connections waits for a look.
  // That must not come when they are further: UCX 1.13 takes what is told late for impossible.
  ucp_worker_progress(worker_);
  return true;
}

absl::StatusOr<PeerId> UcxTransport::Connect(const std::string& address, const ConnectOptions& options) {
  CISTERN_CHECK(handler_ != nullptr);
  Inside inside(*this);
  CISTERN_ASSIGN_OR_RETURN(const SocketAddress parsed, ParseFabricAddress(address));
  CISTERN_ASSIGN_OR_RETURN(UcxPeer * peer, NewPeer(false));
  peer->connect = options;
  peer->remote = address;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = parsed.raw();
  params.sockaddr.addrlen = parsed.raw_bytes();
  absl::Status status;
  const std::string& source = context_->options().source;
  absl::StatusOr<SocketAddress> from = absl::NotFoundError("");
  if (!source.empty()) {
    from = SocketAddress::Parse(absl::StrCat("tcp:", source, ":0"));
    status = from.status();
    if (from.ok()) {
      params.field_mask |= UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR;
      params.local_sockaddr.addr = from->raw();
      params.local_sockaddr.addrlen = from->raw_bytes();
    }
  }
  if (status.ok()) status = OpenEndpoint(*peer, params);
  if (!status.ok()) {
    Doom(*peer, status);  // A peer that is down from the start, told by Poll.
  } else {
    QueueHello(*peer);
  }
  return peer->id;
}

void UcxTransport::OnError(void* peer, ucp_ep_h, ucs_status_t status) noexcept {
  auto& failed = *static_cast<UcxPeer*>(peer);
  UcxTransport& self = *failed.transport;
  ++self.counters_.endpoint_errors;
  self.failed_.emplace_back(failed.id, status);
  self.Wake();
}

bool UcxTransport::HandleFailed() {
  if (failed_.empty()) return false;
  const size_t count = failed_.size();  // To close one may bring others.
  for (size_t i = 0; i < count; ++i) {
    const auto [id, status] = failed_[i];
    if (UcxPeer* peer = Find(id); peer != nullptr) {
      Down(*peer,
           absl::UnavailableError(absl::StrCat("fabric connection lost: ", ucs_status_string(status))));
    }
  }
  failed_.erase(failed_.begin(), failed_.begin() + static_cast<ptrdiff_t>(count));
  return true;
}

void UcxTransport::Doom(UcxPeer& peer, absl::Status why) {
  if (peer.doomed) return;
  peer.doomed = true;
  peer.doom = std::move(why);
  doomed_.push_back(peer.id);
  Wake();
}

void UcxTransport::CloseBad(UcxPeer& peer, const absl::Status& why) {
  ++counters_.bad_frames;
  Down(peer, absl::Status(why));  // A copy: `why` may lie in the peer.
}

// When this returns no byte of the peer lands in memory of others any more, and nothing of ours is read for
// it.
void UcxTransport::Down(UcxPeer& peer, const absl::Status& why) {
  if (peer.state == State::kDown) return;
  const bool known = peer.IsKnown();
  if (peer.IsUnauthenticated()) --unauthenticated_;
  peer.state = State::kDown;
  CloseEndpoint(peer);
  LetGo(peer);
  const auto found = peers_.find(peer.id);
  graveyard_.push_back(std::move(found->second));
  peers_.erase(found);
  if (known && handler_ != nullptr) handler_->OnPeerDown(peer.id, why);
}

// Forced: what is under way is cancelled here, without a word of the peer. UCX is then driven until it has
// let go of memory that is not ours; its callbacks only enqueue, so nothing else happens meanwhile.
void UcxTransport::CloseEndpoint(UcxPeer& peer) {
  if (peer.ep == nullptr) return;
  ++counters_.forced_closes;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t request = ucp_ep_close_nbx(peer.ep, &params);
  by_endpoint_.erase(peer.ep);
  peer.ep = nullptr;
  const auto writes_into_targets = [&peer] {
    return std::any_of(peer.pulls.begin(), peer.pulls.end(),
                       [](const PullOp* pull) { return pull->direct_in_flight > 0; });
  };
  const auto is_open = [&request] {
    if (!UCS_PTR_IS_PTR(request)) return false;
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return true;
    ucp_request_free(request);
    request = nullptr;
    return false;
  };
  const Nanos begin = BootClock().Now();
  while (is_open() || writes_into_targets()) {
    ucp_worker_progress(worker_);
    if (BootClock().Now() - begin < kForcedCloseMax) continue;
    // Memory that a device may still write cannot be given back: rather no process than wrong bytes.
    std::fprintf(stderr, "cistern: the fabric did not let go of a connection within %d s\n",
                 static_cast<int>(kForcedCloseMax / kSecond));
    std::abort();
  }
  // What ended with the close says so within a few rounds; what does not is an orphan.
  for (int i = 0; i < 64 && (peer.sends_in_flight > 0 || !peer.pulls.empty()); ++i) {
    if (ucp_worker_progress(worker_) == 0) break;
  }
}

// The peer's operations become nobody's: their callbacks, should they come, find no peer.
void UcxTransport::LetGo(UcxPeer& peer) {
  for (PullOp* pull : peer.pulls) {
    pull->peer = nullptr;
    if (pull->in_flight > 0) {
      ++counters_.orphans;
    } else {
      WantAdvance(*pull);
    }
  }
  peer.pulls.clear();
  std::erase_if(pulls_waiting_, [](const PullOp* pull) { return pull->peer == nullptr; });
  for (Outgoing* outgoing : peer.queue) {
    if (outgoing->in_flight == 0) EndOutgoing(outgoing);
  }
  peer.queue.clear();
  counters_.orphans += peer.sends_in_flight;
  for (Inbound* item : peer.inbound) {
    if (item != nullptr) inbound_pool_.Give(item);
  }
  peer.inbound.clear();
  peer.regions.clear();
}

}  // namespace cistern
