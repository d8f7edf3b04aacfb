#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
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

constexpr uint32_t kPollFailuresMax = 1000;  // In a row, for want of memory.
// What gRPC, a few connections and their mapped regions take. Without a descriptor gRPC ends the process.
constexpr int kDescriptorsSpare = 32;

uint64_t Entropy() {
  uint64_t seed = 0;
  if (getentropy(&seed, sizeof(seed)) != 0)
    seed = static_cast<uint64_t>(BootClock().Now()) ^ static_cast<uint64_t>(getpid()) << 32;
  return seed;
}

Status Errno(const char* what) {
  return {Code::kResourceExhausted, std::string(what) + ": " + std::strerror(errno)};
}

// Whether so many descriptors are left: by taking them.
Status CheckDescriptors(int fd) {
  std::array<int, kDescriptorsSpare> taken;
  int count = 0;
  while (count < kDescriptorsSpare && (taken[count] = fcntl(fd, F_DUPFD_CLOEXEC, 0)) >= 0) ++count;
  const int error = errno;
  for (int i = 0; i < count; ++i) close(taken[i]);
  if (count == kDescriptorsSpare) return {};
  return {Code::kResourceExhausted, "only " + std::to_string(count) + " file descriptors are left (" +
                                        std::strerror(error) + "), a client needs " +
                                        std::to_string(kDescriptorsSpare) + "; raise ulimit -n"};
}

// protobuf takes no other text: the router would not be reached, without a word why.
bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    const int more = lead < 0x80                   ? 0
                     : lead >= 0xc2 && lead < 0xe0 ? 1
                     : (lead & 0xf0) == 0xe0       ? 2
                     : lead >= 0xf0 && lead < 0xf5 ? 3
                                                   : -1;
    if (more < 0 || text.size() - i < static_cast<size_t>(more)) return false;
    uint32_t point = more == 0 ? lead : lead & (0x3fu >> more);
    for (int k = 0; k < more; ++k, ++i) {
      const auto next = static_cast<unsigned char>(text[i]);
      if ((next & 0xc0) != 0x80) return false;
      point = point << 6 | (next & 0x3f);
    }
    if ((more == 2 && point < 0x800) || (more == 3 && point < 0x10000) || point > 0x10ffff ||
        (point >= 0xd800 && point < 0xe000)) {
      return false;
    }
  }
  return true;
}

}  // namespace

Client::Impl::Impl(const ClientOptions& options, Clock* clock)
    : options_(options),
      clock_(clock != nullptr ? *clock : boot_clock_),
      random_(Entropy()),
      anchor_(std::make_shared<ClientAnchor>()) {}

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
  if (!IsUtf8(options_.tenant)) return {Code::kInvalidArgument, "tenant: not UTF-8"};
  if (mailbox_.fd() < 0) return Errno("event fd");
  if (Status spare = CheckDescriptors(mailbox_.fd()); !spare.ok()) return spare;
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
  if (Status claimed = ClaimGrpc(); !claimed.ok()) return claimed;
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
  link_.reset();  // Posts to the mailbox until it is gone.
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
  if (closed_) return;
  {
    MutexLock lock(&news_mutex_);
    if (news_map_.has_value()) taken_map_ = std::exchange(news_map_, std::nullopt);
    if (news_ticket_.has_value()) taken_ticket_ = std::exchange(news_ticket_, std::nullopt);
  }
  if (taken_ticket_.has_value()) {
    core_->SetCredentials(taken_ticket_->sealed, taken_ticket_->namespace_secret, taken_ticket_->cluster);
    taken_ticket_.reset();
  }
  if (taken_map_.has_value()) {
    core_->SetMap(*taken_map_);
    taken_map_.reset();
  }
}

bool Client::Impl::PollLocked(std::vector<std::function<void()>>& run) {
  if (armed_at_ != kNever && clock_.Now() >= armed_at_) {
    uint64_t expirations;
    (void)!read(timer_fd_, &expirations, sizeof(expirations));
    armed_at_ = kNever;
  }
  bool did = DrainMail();
  did |= core_->Poll();
  TakeReady(run);
  if (core_->HasGonePeers()) {  // Beginning a gRPC call takes a while: not under the lock.
    run.push_back([this, gone = core_->TakeGonePeers()] { link_->ReportGone(gone); });
  }
  if (core_->TakeTicketRefused()) link_->RenewTicket();
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
  epoll_event events[4];
  int n = 0;
  {
    const MutexUnlock unlocked(&mutex_);
    n = epoll_wait(epoll_fd_, events, 4, -1);  // The timer ends it: every call has a deadline.
  }
  asleep_ = false;
  for (int i = 0; i < n; ++i) {
    uint64_t count;
    if (events[i].data.fd == wake_fd_) (void)!read(wake_fd_, &count, sizeof(count));
  }
  if (options_.spin) transport_->SetSpinning(true);
}

void Client::Impl::RunAll(std::vector<std::function<void()>>& run, std::exception_ptr& thrown) {
  for (auto& callback : run) {
    try {
      callback();
    } catch (...) {
      if (!thrown) thrown = std::current_exception();
    }
  }
  run.clear();
}

bool Client::Impl::Poll() {
  std::vector<std::function<void()>> run;
  bool did;
  {
    MutexLock lock(&mutex_);
    try {
      did = PollLocked(run);
      Arm();
    } catch (const std::bad_alloc&) {
      Arm();  // What is left to do shows on event_fd.
      if (run.empty()) throw;
      did = true;  // What has been taken out to be run is run.
    }
  }
  std::exception_ptr thrown;  // A callback may have freed this.
  RunAll(run, thrown);
  if (thrown) std::rethrow_exception(thrown);
  return did;
}

Client::Impl::Seat::Seat(Impl& impl, Waiting& waiting) : impl_(impl), waiting_(waiting) {
  impl.mutex_.AssertHeld();
  waiting.serial = ++impl.waiting_serial_;
  waiting.next = std::exchange(impl.waiting_, &waiting);
  if (impl.waiters_++ == 0 && impl.options_.spin) impl.transport_->SetSpinning(true);
}

Client::Impl::Seat::~Seat() {
  impl_.mutex_.AssertHeld();
  Waiting** at = &impl_.waiting_;
  while (*at != &waiting_) at = &(*at)->next;
  *at = waiting_.next;
  try {
    // Left with an exception: no byte may land in the caller's pages from here on.
    if (!waiting_.done && waiting_.op != 0) impl_.core_->Cancel(waiting_.op);
    if (--impl_.waiters_ > 0) {
      impl_.turn_.SignalAll();
      return;
    }
    if (impl_.options_.spin) impl_.transport_->SetSpinning(false);
    impl_.Arm();                     // From here on event_fd has to show what comes.
  } catch (const std::bad_alloc&) {  // The next one to poll or wait does it.
  }
}

Client::Impl::Waiting* Client::Impl::FindWaiting(uint64_t serial) {
  Waiting* waiting = waiting_;
  while (waiting != nullptr && waiting->serial != serial) waiting = waiting->next;
  return waiting;
}

void Client::Impl::WaitFor(const bool* done) {
  Waiting waiting;
  MutexLock lock(&mutex_);
  const Seat seat(*this, waiting);
  Drive(done);
}

void Client::Impl::Drive(const bool* done) {
  std::vector<std::function<void()>> run;
  std::exception_ptr thrown;  // By another call's callback: told when this one's has ended.
  SpinWait spin;
  uint32_t failures = 0;
  while (!*done) {
    if (asleep_) {
      turn_.Wait(&mutex_);
      continue;
    }
    bool did = true;
    try {
      did = PollLocked(run);
      failures = 0;
      // Its outcome was lost on the way here, for want of memory; nothing is out that could touch its pages.
      if (!did && run.empty() && !*done && core_->outstanding() == 0) break;
      if (!did && run.empty() && !*done && !(options_.spin && !transport_->AwaitsBulk())) Sleep();
    } catch (const std::bad_alloc&) {
      // To leave would be to leave pages behind that bytes may land in: memory may come back.
      if (++failures == kPollFailuresMax) break;
    }
    if (did) spin.Reset();
    if (did && run.empty()) continue;
    if (run.empty() && (*done || !options_.spin)) continue;
    // A callback takes as long as it likes, and may wait for what another thread waits for: that one drives.
    if (!run.empty() && waiters_ > 1) turn_.SignalAll();
    const MutexUnlock unlocked(&mutex_);  // Others may submit between two polls.
    if (run.empty()) {
      spin.Once();
    } else {
      RunAll(run, thrown);
    }
  }
  if (thrown) std::rethrow_exception(thrown);
  if (!*done) throw std::bad_alloc();
}

}  // namespace cistern
