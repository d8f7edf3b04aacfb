#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "client/client_impl.h"
#include "client/convert.h"
#include "core/host_port.h"
#include "core/spin_wait.h"
#include "transport/fabric.h"
#include "transport/joined_transport.h"
#include "transport/socket_transport.h"

// How a client is driven: polling, sleeping, waking, and what the router's link brings.
namespace cistern {
namespace {

uint64_t Entropy() {
  uint64_t seed = 0;
  if (getentropy(&seed, sizeof(seed)) != 0)
    seed = static_cast<uint64_t>(BootClock().Now()) ^ static_cast<uint64_t>(getpid()) << 32;
  return seed;
}

Status Errno(const char* what) {
  return {Code::kResourceExhausted, std::string(what) + ": " + std::strerror(errno)};
}

}  // namespace

Client::Impl::Impl(const ClientOptions& options)
    : options_(options), random_(Entropy()), anchor_(std::make_shared<ClientAnchor>()) {}

Nanos Client::Impl::TimeOf(const CallOptions& options) const {
  const Nanos deadline = DeadlineOf(options);
  return deadline != 0 ? deadline : ToNanos(options_.default_deadline);
}

Status Client::Impl::OpenTransport() {
  auto sockets = SocketTransport::Create(clock_);
  if (!sockets.ok()) return ToPublic(sockets.status());
  transport_ = *std::move(sockets);
  if (options_.transport != "socket") {
    auto window = PutWindow::Create(options_.window_bytes);
    if (!window.ok()) return ToPublic(window.status());
    window_ = std::make_unique<PutWindow>(*std::move(window));
  }
  if (options_.transport != "ucx" && options_.fabric.empty()) return {};
  FabricOptions fabric;
  const absl::StatusOr<HostPort> with_port = ParseHostPort(options_.fabric, PortZero::kAnyFree);
  fabric.source = with_port.ok() ? with_port->HostText() : options_.fabric;  // A port has no meaning here.
  fabric.transports = options_.fabric_transports;
  fabric.devices = options_.fabric_devices;
  fabric.require_rdma = options_.require_rdma;
  const auto domain = OpenFabric(fabric);
  if (!domain.ok()) return ToPublic(domain.status());
  auto ucx = MakeFabric(*domain, clock_, FabricThreads::kInTurns);
  if (!ucx.ok()) return ToPublic(ucx.status());
  auto joined = JoinedTransport::Create(std::move(transport_), *std::move(ucx));
  if (!joined.ok()) return ToPublic(joined.status());
  transport_ = *std::move(joined);
  return {};
}

Status Client::Impl::Init() {
  if (options_.transport != "auto" && options_.transport != "map" && options_.transport != "socket" &&
      options_.transport != "ucx") {
    return {Code::kInvalidArgument,
            "transport: \"" + options_.transport + "\" is not auto, map, socket or ucx"};
  }
  if (options_.lease_ttl.count() <= 0 || ToNanos(options_.lease_ttl) > kLeaseTtlMax) {
    return {Code::kInvalidArgument, "lease_ttl: not in (0, 30 s]"};
  }
  if (options_.default_deadline.count() <= 0)
    return {Code::kInvalidArgument, "default_deadline: not above 0"};
  {
    MutexLock lock(&mutex_);
    if (Status opened = OpenTransport(); !opened.ok()) return opened;
    ClientCoreOptions core;
    core.transport = options_.transport;
    core.fabric = options_.transport == "ucx" || !options_.fabric.empty();
    core.default_deadline = ToNanos(options_.default_deadline);
    core.lease_ttl = ToNanos(options_.lease_ttl);
    core.breaker_failures = options_.breaker_failures;
    core.breaker_retry = ToNanos(options_.breaker_retry);
    core.negative_ttl = ToNanos(options_.negative_ttl);
    core.window = window_.get();
    if (!options_.host_share.empty())
      share_ = std::make_unique<HostShare>(options_.host_share, options_.host_share_bytes);
    core.share = share_.get();
    core_ = std::make_unique<ClientCore>(core, clock_, *transport_, random_);
    epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
    timer_fd_ = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (epoll_fd_ < 0 || timer_fd_ < 0 || wake_fd_ < 0) return Errno("epoll, timer or event fd");
    for (const int fd : {transport_->WaitFd(), timer_fd_, wake_fd_, mailbox_.fd()}) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.fd = fd;
      if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) return Errno("epoll_ctl");
    }
  }
  {
    MutexLock lock(&anchor_->mutex);
    anchor_->client = this;
  }
  return ConnectRouter();
}

Status Client::Impl::ConnectRouter() {
  RouterLinkOptions link;
  link.router = options_.router;
  link.tenant = options_.tenant;
  if (options_.admin) link.rights |= kRightAdmin;
  link.first_refusal_ends = !options_.wait_for_router;
  RouterLinkCallbacks callbacks;
  callbacks.on_map = [this](const ClusterMap& map) {
    {
      MutexLock lock(&news_mutex_);
      news_map_ = map;
    }
    OnNews();
  };
  callbacks.on_ticket = [this](const TicketGrant& ticket) {
    {
      MutexLock lock(&news_mutex_);
      news_ticket_ = ticket;
    }
    OnNews();
  };
  link_ = std::make_unique<RouterLink>(link, std::move(callbacks));
  if (const absl::Status ready = link_->WaitReady(ToNanos(options_.connect_deadline)); !ready.ok())
    return ToPublic(ready);
  MutexLock lock(&mutex_);
  // Waiters of the link wake before its callbacks have run: what it holds is news as well.
  if (const auto t = link_->ticket()) core_->SetCredentials(t->sealed, t->namespace_secret, t->cluster);
  if (const auto map = link_->map()) core_->SetMap(*map);
  if (core_->map().nodes.empty() && !core_->has_credentials())
    return {Code::kUnavailable, "router gave neither map nor ticket"};
  return {};
}

Client::Impl::~Impl() {
  {
    MutexLock lock(&anchor_->mutex);
    anchor_->client = nullptr;
  }
  // Every call ends; what the core says then is run without the lock, when no byte can land any more. Core
  // and link are there until the last callback has run: it may ask for more, and is refused.
  std::vector<std::function<void()>> run;
  for (uint32_t round = 0; round < kCloseRoundsMax; ++round) {
    {
      MutexLock lock(&mutex_);
      if (core_ != nullptr) core_->Close();
      if (core_ != nullptr) (void)core_->Poll();
      run.swap(ready_);
    }
    if (run.empty()) break;
    for (auto& callback : run) callback();
    run.clear();
  }
  link_.reset();
  for (const int fd : {epoll_fd_, timer_fd_, wake_fd_}) {
    if (fd >= 0) close(fd);
  }
}

void Client::Impl::OnNews() {
  // A full mailbox holds such a task already.
  (void)mailbox_.Post([this] {
    mutex_.AssertHeld();
    TakeNews();
  });
}

void Client::Impl::TakeNews() {
  std::optional<ClusterMap> map;
  std::optional<TicketGrant> ticket;
  {
    MutexLock lock(&news_mutex_);
    map.swap(news_map_);
    ticket.swap(news_ticket_);
  }
  if (ticket.has_value()) core_->SetCredentials(ticket->sealed, ticket->namespace_secret, ticket->cluster);
  if (map.has_value()) core_->SetMap(*map);
}

bool Client::Impl::PollLocked(std::vector<std::function<void()>>& run) {
  if (armed_at_ != kNever && clock_.Now() >= armed_at_) {
    uint64_t expirations;
    (void)!read(timer_fd_, &expirations, sizeof(expirations));
    armed_at_ = kNever;
  }
  bool did = mailbox_.Drain();
  did |= core_->Poll();
  run.swap(ready_);
  if (core_->HasGonePeers()) {  // Beginning a gRPC call takes a while: not under the lock.
    run.push_back([this, gone = core_->TakeGonePeers()] { link_->ReportGone(gone); });
  }
  TellFinished();
  return did;
}

void Client::Impl::TellFinished() {
  if (!finished_) return;
  finished_ = false;
  if (waiters_ > 0) turn_.SignalAll();
  if (asleep_) Wake();
}

// Keeps the promise of event_fd: readable when Poll would find work. Costs a system call only when the next
// moment to act is earlier than the one the timer is set to.
void Client::Impl::Arm() {
  // A fabric tells of what comes only when it was asked to, right before the wait.
  const bool quiet = transport_->PrepareWait();
  const Nanos wake = ready_.empty() && quiet ? core_->NextWake() : 0;
  if (wake >= armed_at_) return;  // Fires earlier; whoever polls then arms what is next.
  itimerspec spec{};
  spec.it_value.tv_sec = wake / kSecond;
  spec.it_value.tv_nsec = wake > 0 ? wake % kSecond : 1;  // All zero would disarm.
  if (timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &spec, nullptr) == 0) armed_at_ = wake;
}

void Client::Impl::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof(one));
}

void Client::Impl::Sleep() {
  if (options_.spin) transport_->SetSpinning(false);
  Arm();
  asleep_ = true;
  mutex_.Unlock();
  epoll_event events[4];
  const int n = epoll_wait(epoll_fd_, events, 4, -1);  // The timer ends it: every call has a deadline.
  mutex_.Lock();
  asleep_ = false;
  for (int i = 0; i < n; ++i) {
    uint64_t count;
    if (events[i].data.fd == wake_fd_) (void)!read(wake_fd_, &count, sizeof(count));
  }
  if (options_.spin) transport_->SetSpinning(true);
}

bool Client::Impl::Poll() {
  std::vector<std::function<void()>> run;
  bool did;
  {
    MutexLock lock(&mutex_);
    did = PollLocked(run);
    Arm();
  }
  for (auto& callback : run) callback();
  return did;
}

void Client::Impl::WaitFor(const bool* done) {
  std::vector<std::function<void()>> run;
  SpinWait spin;
  mutex_.Lock();
  if (waiters_++ == 0 && options_.spin) transport_->SetSpinning(true);
  while (!*done) {
    if (asleep_) {
      turn_.Wait(&mutex_);
      continue;
    }
    const bool did = PollLocked(run);
    if (did) spin.Reset();
    if (!run.empty()) {
      mutex_.Unlock();
      for (auto& callback : run) callback();
      run.clear();
      mutex_.Lock();
    } else if (!*done && !did) {
      if (options_.spin && !transport_->AwaitsBulk()) {
        mutex_.Unlock();  // Others may submit between two polls.
        spin.Once();
        mutex_.Lock();
      } else {
        Sleep();
      }
    }
  }
  if (--waiters_ > 0) {
    turn_.SignalAll();
  } else {
    if (options_.spin) transport_->SetSpinning(false);  // From here on event_fd has to show what comes.
    Arm();
  }
  mutex_.Unlock();
}

}  // namespace cistern
