#include "transport/ucx/ucx_transport.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/status_macros.h"
#include "transport/frame_limits.h"
#include "transport/polling_scope.h"
#include "transport/ucx/held_fds.h"

namespace cistern {
namespace {

constexpr int kProgressRounds = 64;  // Of one Poll: the owner has other things to do as well.
constexpr uint32_t kQuietPolls = 16;

absl::Status NotUp(PeerId id) { return absl::UnavailableError(absl::StrCat("peer ", id, " is not up")); }

}  // namespace

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(std::shared_ptr<UcxContext> context,
                                                                   Clock& clock, FabricThreads threads) {
  std::unique_ptr<UcxTransport> transport(new UcxTransport(std::move(context), clock));
  CISTERN_RETURN_IF_ERROR(transport->Open(threads));
  return transport;
}

absl::Status UcxTransport::Open(FabricThreads threads) {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.Reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  timer_.Reset(timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!epoll_.valid() || !wake_.valid() || !timer_.valid())
    return absl::ErrnoToStatus(errno, "descriptors of a fabric transport");
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = threads == FabricThreads::kOne ? UCS_THREAD_MODE_SINGLE : UCS_THREAD_MODE_SERIALIZED;
  if (const ucs_status_t status = ucp_worker_create(context_->get(), &params, &worker_); status != UCS_OK) {
    worker_ = nullptr;
    return UcxError(status, "a fabric worker");
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kAmId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = OnMessage;
  handler.arg = this;
  if (const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_, &handler); status != UCS_OK)
    return UcxError(status, "the handler of active messages");
  int worker_fd = -1;
  if (const ucs_status_t status = ucp_worker_get_efd(worker_, &worker_fd); status != UCS_OK)
    return UcxError(status, "the descriptor to wait on");
  for (const int fd : {worker_fd, wake_.get(), timer_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return absl::ErrnoToStatus(errno, "epoll_ctl");
  }
  CISTERN_ASSIGN_OR_RETURN(bounce_, BouncePool::Create(registrations_));
  return absl::OkStatus();
}

UcxTransport::~UcxTransport() {
  if (worker_ == nullptr) return;
  handler_ = nullptr;
  ids_.clear();
  for (const auto& [id, peer] : peers_) ids_.push_back(id);
  for (const PeerId id : ids_) Down(*Find(id), absl::OkStatus());
  graveyard_.clear();
  for (ucp_conn_request_h request : pending_) ucp_listener_reject(listeners_[0], request);
  pending_.clear();
  for (ucp_listener_h listener : listeners_) ucp_listener_destroy(listener);
  ucp_worker_destroy(worker_);
}

absl::Status UcxTransport::AddMemory(std::byte* data, size_t bytes, size_t grain) {
  return registrations_.Add(data, bytes, grain).status();
}

void UcxTransport::RemoveMemory(const std::byte* data) {
  const Registration* registration = registrations_.Find(data, 1);
  if (registration != nullptr && registration->data == data) registrations_.Remove(data);
}

UcxPeer* UcxTransport::Find(PeerId id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second.get();
}

absl::Status UcxTransport::Send(PeerId id, const OutFrame& frame) {
  Inside inside(*this);
  UcxPeer* peer = Find(id);
  if (peer == nullptr || peer->state != State::kUp || peer->doomed) return NotUp(id);
  CISTERN_RETURN_IF_ERROR(CheckFrameBytes(frame));
  if (peer->queued_frames >= kSendQueueFramesMax ||
      (peer->queued_frames > 0 && peer->queued_bytes + frame.body.size() > kSendQueueBytesMax)) {
    return absl::ResourceExhaustedError(absl::StrCat("peer ", id, ": ", peer->queued_frames, " frames with ",
                                                     peer->queued_bytes, " bytes of bodies wait"));
  }
  Queue(*peer, frame, {});
  if (frame.flush) {
    Post(*peer);
  } else {
    WantPost(*peer);
  }
  return absl::OkStatus();
}

bool UcxTransport::Cancel(PeerId id, uint64_t request_id) {
  UcxPeer* peer = Find(id);
  if (peer == nullptr || peer->doomed) return true;  // Nothing of it will come.
  // A payload under way is copied out of UCX's buffers by us: what has not been never will be.
  if (peer->incoming.active && peer->incoming.header.request_id == request_id) {
    peer->incoming.dropped = true;
  } else {
    if (peer->cancelled.size() >= kUcxCancelledMax) return false;
    peer->cancelled.insert(request_id);
  }
  ++counters_.cancelled_requests;
  return true;
}

void UcxTransport::Fence(PeerId id, const absl::Status& why) {
  Inside inside(*this);
  UcxPeer* peer = Find(id);
  if (peer != nullptr) Down(*peer, why);
}

const PeerPath* UcxTransport::Path(PeerId id) const {
  const UcxPeer* peer = Find(id);
  return peer == nullptr ? nullptr : &peer->path;
}

std::map<std::string, uint64_t> UcxTransport::counters() const {
  std::map<std::string, uint64_t> all = counters_.ToMap();
  all["ucx_registered_bytes"] = registrations_.bytes();
  all["ucx_registered_regions"] = registrations_.chunks();
  all["ucx_endpoints"] = by_endpoint_.size();
  all["ucx_held_fds"] = HeldFds();  // Of the process.
  return all;
}

bool UcxTransport::Progress() {
  bool any = false;
  // Ends when there is something to deliver: bytes behind a frame land in place once the frame was looked at.
  for (int i = 0; i < kProgressRounds && readable_.empty() && ucp_worker_progress(worker_) != 0; ++i)
    any = true;
  return any;
}

bool UcxTransport::Poll() {
  if (polling_) return false;  // From inside a callback.
  Inside inside(*this);
  const PollingScope polling(polling_);
  bool moved = PostWaiting();
  // Without peers there is only the listener to look after; PrepareWait sees what comes in between.
  if (!peers_.empty() || ++quiet_polls_ % kQuietPolls == 0) moved |= Progress();
  moved |= AcceptPending();
  moved |= DeliverAll();  // Before errors: what came before the end counts.
  moved |= AdvancePulls();
  moved |= HandleFailed();
  if (next_check_ != kNever && clock_.Now() >= next_check_) CheckDeadlines();
  moved |= DeliverDeferred();
  moved |= PostWaiting();
  if (awake_) {
    uint64_t count = 0;
    (void)!read(wake_.get(), &count, sizeof(count));
    awake_ = false;
  }
  return moved;
}

bool UcxTransport::PrepareWait() {
  const bool due = !sent_.empty() || !doomed_.empty() || !failed_.empty() || !unposted_.empty() ||
                   !readable_.empty() || !pulls_due_.empty() || !pending_.empty();
  return !due && ucp_worker_arm(worker_) == UCS_OK;
}

// What callbacks add while this runs is for the next Poll, so that nobody keeps Poll busy for ever.
bool UcxTransport::DeliverDeferred() {
  const size_t sent = sent_.size();
  const size_t doomed = doomed_.size();
  for (size_t i = 0; i < sent; ++i) {
    const auto [id, cookie] = sent_[i];
    if (Find(id) != nullptr) handler_->OnSent(id, cookie);
  }
  sent_.erase(sent_.begin(), sent_.begin() + static_cast<ptrdiff_t>(sent));
  for (size_t i = 0; i < doomed; ++i) {
    UcxPeer* peer = Find(doomed_[i]);
    if (peer != nullptr) Down(*peer, absl::Status(peer->doom));
  }
  doomed_.erase(doomed_.begin(), doomed_.begin() + static_cast<ptrdiff_t>(doomed));
  return sent + doomed > 0;
}

// Outside of Poll nothing but this tells a sleeping owner that there is something to deliver.
void UcxTransport::Wake() {
  if (awake_ || polling_) return;
  awake_ = true;
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

// Setting it takes back what it has fired as well. A busy owner looks at a deadline before the timer does:
// left alone, that would fire later, and nobody would read it, so the owner's sleep would end at once, time
// after time.
void UcxTransport::ArmTimer() {
  itimerspec spec{};  // All zero: never.
  if (next_check_ != kNever) {
    const Nanos left = std::max<Nanos>(next_check_ - clock_.Now(), kMillisecond);
    spec.it_value.tv_sec = left / kSecond;
    spec.it_value.tv_nsec = left % kSecond;
  }
  timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

void UcxTransport::CheckDeadlines() {
  const Nanos now = clock_.Now();
  next_check_ = kNever;
  ids_.clear();
  for (const auto& [id, peer] : peers_) {
    if (peer->deadline <= now) {
      ids_.push_back(id);
    } else {
      next_check_ = std::min(next_check_, peer->deadline);
    }
  }
  ArmTimer();
  const std::vector<PeerId> late = ids_;
  for (const PeerId id : late) {
    UcxPeer* peer = Find(id);
    if (peer == nullptr) continue;
    if (peer->state != State::kRefusing) ++counters_.handshake_timeouts;
    Down(*peer, absl::UnavailableError(absl::StrCat("peer ", id, ": no handshake in time")));
  }
}

}  // namespace cistern
