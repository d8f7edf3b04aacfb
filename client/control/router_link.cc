#include "client/control/router_link.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/control/gone_reporter.h"
#include "core/status_macros.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/convert.h"
#include "proto/convert_control.h"
#include "proto/grpc_util.h"

namespace cistern {
namespace {

constexpr Nanos kRenewMax = 6 * 3600 * kSecond;

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

uint64_t DrawSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// Errors that more patience does not cure.
bool NeedsAPerson(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status) ||
         absl::IsFailedPrecondition(status);
}

absl::Status Explain(const std::string& router, const absl::Status& status, std::string_view what) {
  const std::string why = status.ok() ? "no reply in time" : std::string(status.message());
  if (NeedsAPerson(status)) {
    return absl::Status(status.code(),
                        absl::StrCat("the router at ", router, " refuses ", std::string(what), ": ", why));
  }
  if (status.ok() || absl::IsDeadlineExceeded(status)) {  // Nobody refused: something may well be there.
    return absl::UnavailableError(absl::StrCat(
        "the router at ", router, " does not answer (", why,
        "): it hangs, is stopped, or cannot be reached from here; see its log, end it and start it again"));
  }
  return absl::UnavailableError(
      absl::StrCat("no router at ", router, " (", why,
                   "); start one with `cistern up`, or give the HOST:PORT of another"));
}

absl::Status CheckAddress(const std::string& router) {
  const absl::Status parsed = ParseHostPort(router).status();
  if (parsed.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("router address ", parsed.message()));
}

}  // namespace

struct RouterLink::Impl {
  Impl(RouterLinkOptions o, RouterLinkCallbacks c)
      : options(std::move(o)),
        callbacks(std::move(c)),
        backoff(options.backoff_min, options.backoff_max, options.seed != 0 ? options.seed : DrawSeed()),
        gone(options.rpc_deadline) {}

  void Run();
  // One connection from its first call until it breaks; why it did.
  absl::Status Session();
  absl::Status GetTicket(proto::Cluster::Stub& stub);
  absl::Status TakeMap(const proto::ClusterMap& wire);
  bool TicketIsDue();
  void SetError(const absl::Status& status);

  const RouterLinkOptions options;
  const RouterLinkCallbacks callbacks;

  // Link's thread only.
  BootClock clock;
  Backoff backoff;
  Nanos renew_at = 0;
  Nanos renew_not_before = 0;  // Whoever asks for it.

  GoneReporter gone;
  CallGuard guard;
  std::atomic<uint64_t> attempts{0};
  std::atomic<uint64_t> connects{0};
  std::atomic<bool> renew_asked{false};
  mutable absl::Mutex mutex;
  absl::Status error ABSL_GUARDED_BY(mutex);
  bool connected ABSL_GUARDED_BY(mutex) = false;
  bool refused ABSL_GUARDED_BY(mutex) = false;  // An attempt has found nobody there.
  std::optional<ClusterMap> map ABSL_GUARDED_BY(mutex);
  std::optional<TicketGrant> ticket ABSL_GUARDED_BY(mutex);
  std::once_flag joined;
  std::thread thread;  // Last: joined before the rest goes.
};

void RouterLink::Impl::SetError(const absl::Status& status) {
  const absl::MutexLock lock(&mutex);
  error = status;
}

absl::Status RouterLink::Impl::GetTicket(proto::Cluster::Stub& stub) {
  renew_asked = false;
  renew_at = renew_not_before = clock.Now() + options.renew_min;  // Holds unless this attempt succeeds.
  proto::GetTicketRequest request;
  request.set_tenant(options.tenant);
  request.set_rights(options.rights);
  proto::GetTicketReply reply;
  {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(options.rpc_deadline));
    const CallGuard::Scope scope(guard, context);
    CISTERN_RETURN_IF_ERROR(FromGrpc(stub.GetTicket(&context, request, &reply)));
  }
  CISTERN_ASSIGN_OR_RETURN(TicketGrant grant, FromWire(reply));
  // Half of its life; on a clock that no one sets.
  const int64_t left_s =
      std::clamp<int64_t>(grant.expires_unix_s - UnixSeconds(), 0, 2 * kRenewMax / kSecond);
  renew_at = clock.Now() + std::max(left_s * kSecond / 2, options.renew_min);
  {
    const absl::MutexLock lock(&mutex);
    ticket = grant;
  }
  if (callbacks.on_ticket) callbacks.on_ticket(grant);
  return absl::OkStatus();
}

bool RouterLink::Impl::TicketIsDue() {
  const Nanos now = clock.Now();
  if (now >= renew_at || (renew_asked && now >= renew_not_before)) return true;
  const absl::MutexLock lock(&mutex);
  return !ticket ||
         (map && map->cluster != ticket->cluster);  // The router at this address is another one now.
}

absl::Status RouterLink::Impl::TakeMap(const proto::ClusterMap& wire) {
  CISTERN_ASSIGN_OR_RETURN(const ClusterMap next, FromWire(wire));
  bool changed = false;
  {
    const absl::MutexLock lock(&mutex);
    connected = true;
    error = absl::OkStatus();
    // Any other epoch, also a lower one: a router that lost its state is the router all the same.
    changed = !map || map->epoch != next.epoch || map->cluster != next.cluster;
    if (changed) map = next;
  }
  if (changed && callbacks.on_map) callbacks.on_map(next);
  return absl::OkStatus();
}

absl::Status RouterLink::Impl::Session() {
  const std::shared_ptr<proto::Cluster::Stub> stub =
      proto::Cluster::NewStub(MakeControlChannel(options.router, options.watch_silent_max));
  if (TicketIsDue()) CISTERN_RETURN_IF_ERROR(GetTicket(*stub));
  grpc::ClientContext context;
  const CallGuard::Scope scope(guard, context);
  const std::unique_ptr<grpc::ClientReader<proto::ClusterMap>> reader =
      stub->WatchMap(&context, proto::WatchMapRequest());
  proto::ClusterMap wire;
  absl::Status status;
  bool first = true;
  while (reader->Read(&wire)) {
    if (!status.ok()) continue;     // Cancelled below; what is still on its way is read off.
    if (first) gone.SetStub(stub);  // Before the map: whoever waited for that may report at once.
    status = TakeMap(wire);
    if (!status.ok()) {
      context.TryCancel();
      continue;
    }
    if (std::exchange(first, false)) {
      ++connects;
      backoff.Reset();
    }
    // The watch goes on without it: the ticket at hand is good for hours yet, and the next copy of the map
    // tries again.
    if (TicketIsDue()) SetError(GetTicket(*stub));
  }
  const absl::Status end = FromGrpc(reader->Finish());
  if (!status.ok()) return status;
  return end.ok() ? absl::UnavailableError("the router ended the watch") : end;
}

void RouterLink::Impl::Run() {
  while (!guard.stopped()) {
    ++attempts;
    const absl::Status status = Session();
    gone.SetStub(nullptr);
    if (guard.stopped()) return;
    {
      const absl::MutexLock lock(&mutex);
      connected = false;
      error = status;
      refused |= absl::IsUnavailable(status);
    }
    if (!guard.WaitFor(backoff.Next())) return;
  }
}

RouterLink::RouterLink(RouterLinkOptions options, RouterLinkCallbacks callbacks)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(callbacks))) {
  if (absl::Status status = CheckAddress(impl_->options.router); !status.ok()) {
    impl_->SetError(status);  // No thread: nothing can come of it, and WaitReady says so.
    return;
  }
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

RouterLink::~RouterLink() { Stop(); }

void RouterLink::Stop() {
  impl_->guard.Stop();
  std::call_once(impl_->joined, [this] {
    if (impl_->thread.joinable()) impl_->thread.join();
  });
}

absl::Status RouterLink::WaitReady(Nanos timeout) {
  Impl& impl = *impl_;
  const absl::MutexLock lock(&impl.mutex);
  const auto ready = [&impl]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(impl.mutex) { return impl.map && impl.ticket; };
  const auto settled = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(impl.mutex) {
    return ready() || NeedsAPerson(impl.error) || (impl.options.first_refusal_ends && impl.refused);
  };
  impl.mutex.AwaitWithTimeout(absl::Condition(&settled), absl::Nanoseconds(timeout));
  if (ready()) return absl::OkStatus();
  if (!ParseHostPort(impl.options.router).ok()) return impl.error;
  return Explain(impl.options.router, impl.error,
                 impl.options.tenant.empty() ? "a ticket" : "tenant " + impl.options.tenant);
}

void RouterLink::ReportGone(const std::vector<GonePeer>& peers) {
  const std::optional<TicketGrant> held = ticket();
  if (held && !peers.empty()) impl_->gone.Report(held->sealed, peers);
}

void RouterLink::RenewTicket() { impl_->renew_asked = true; }

std::optional<ClusterMap> RouterLink::map() const {
  const absl::MutexLock lock(&impl_->mutex);
  return impl_->map;
}
std::optional<TicketGrant> RouterLink::ticket() const {
  const absl::MutexLock lock(&impl_->mutex);
  return impl_->ticket;
}
bool RouterLink::connected() const {
  const absl::MutexLock lock(&impl_->mutex);
  return impl_->connected;
}
uint64_t RouterLink::connect_attempts() const { return impl_->attempts; }
uint64_t RouterLink::connects() const { return impl_->connects; }

uint64_t RouterLink::gone_reported() const { return impl_->gone.reported(); }
uint64_t RouterLink::gone_dropped() const { return impl_->gone.dropped(); }

absl::StatusOr<ClusterStatus> RouterLink::GetStatus(Nanos timeout) {
  return FetchClusterStatus(impl_->options.router, timeout);
}

absl::StatusOr<ClusterStatus> FetchClusterStatus(const std::string& router, Nanos timeout) {
  CISTERN_RETURN_IF_ERROR(CheckAddress(router));
  const auto stub = proto::Cluster::NewStub(MakeControlChannel(router, std::max(timeout, kSecond)));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(timeout));
  proto::GetStatusReply reply;
  const absl::Status status = FromGrpc(stub->GetStatus(&context, proto::GetStatusRequest(), &reply));
  if (!status.ok()) return Explain(router, status, "status");
  return FromWire(reply);
}

absl::StatusOr<DrainResult> DrainNode(const std::string& router, const std::string& node, bool undo,
                                      Nanos timeout) {
  CISTERN_RETURN_IF_ERROR(CheckAddress(router));
  const auto stub = proto::Cluster::NewStub(MakeControlChannel(router, std::max(timeout, kSecond)));
  const auto deadline = GrpcDeadline(timeout);
  grpc::ClientContext ticket_context, context;
  ticket_context.set_deadline(deadline);
  context.set_deadline(deadline);
  proto::GetTicketRequest wanted;
  wanted.set_rights(kRightAdmin);
  proto::GetTicketReply ticket;
  absl::Status status = FromGrpc(stub->GetTicket(&ticket_context, wanted, &ticket));
  if (!status.ok()) return Explain(router, status, "a ticket");
  proto::DrainNodeReply reply;
  status = FromGrpc(stub->DrainNode(&context, ToWire(DrainRequest{ticket.ticket(), node, undo}), &reply));
  if (absl::IsNotFound(status) || absl::IsFailedPrecondition(status)) return status;  // About the node.
  if (!status.ok()) return Explain(router, status, "draining");
  return FromWire(reply);
}

}  // namespace cistern
