#include "router/router_host.h"

#include <algorithm>
#include <utility>

#include <poll.h>

#include "core/check.h"

namespace cistern {

RouterHost::RouterHost(std::unique_ptr<Router> router, Clock& clock)
    : router_(std::move(router)), clock_(clock) {}

RouterHost::~RouterHost() { Stop(); }

void RouterHost::Start(Hooks hooks) {
  CISTERN_CHECK(!thread_.joinable() && mailbox_.fd() >= 0);
  hooks_ = std::move(hooks);
  {
    const absl::MutexLock lock(&mutex_);
    open_ = true;
  }
  thread_ = std::thread([this] { Run(); });
}

bool RouterHost::Post(std::function<void(Router&)> task) {
  const absl::MutexLock lock(&mutex_);
  if (!open_) return false;
  return mailbox_.Post([this, task = std::move(task)] { task(*router_); });
}

void RouterHost::Stop() {
  if (!thread_.joinable()) return;
  bool told = false;
  while (!told) {
    const absl::MutexLock lock(&mutex_);
    open_ = false;
    told = mailbox_.Post([this] { stopping_ = true; });  // Full: the thread is emptying it.
  }
  thread_.join();
}

void RouterHost::Run() {
  uint64_t told_epoch = 0;
  while (true) {
    mailbox_.Drain();
    const Nanos next = router_->Tick();
    if (router_->map().epoch != told_epoch) {
      told_epoch = router_->map().epoch;
      if (hooks_.on_map) hooks_.on_map(router_->map());
    }
    if (hooks_.on_turn) hooks_.on_turn();
    if (stopping_) return;
    // Rounded up, so that a deadline has passed when the thread wakes for it.
    const Nanos now = clock_.Now();
    const Nanos wait_ms =
        std::clamp<Nanos>((next - now + kMillisecond - 1) / kMillisecond, 0, kTickMax / kMillisecond);
    pollfd wake{mailbox_.fd(), POLLIN, 0};
    ::poll(&wake, 1, static_cast<int>(wait_ms));
  }
}

}  // namespace cistern
