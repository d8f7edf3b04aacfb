#include "cache_node/shard_loop.h"

#include <poll.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "cache_node/disk/disk_tier.h"
#include "core/check.h"
#include "core/spin_wait.h"
#include "core/status_macros.h"

namespace cistern {

absl::StatusOr<std::unique_ptr<ShardLoop>> ShardLoop::Create(NodeShardOptions options,
                                                             std::unique_ptr<Transport> transport,
                                                             std::unique_ptr<Clock> clock, uint64_t seed) {
  std::unique_ptr<ShardLoop> loop(new ShardLoop(std::move(transport), std::move(clock), seed));
  CISTERN_ASSIGN_OR_RETURN(
      loop->shard_, NodeShard::Create(std::move(options), *loop->clock_, *loop->transport_, loop->random_));
  loop->last_poll_.store(loop->clock_->Now(), std::memory_order_relaxed);
  const MutexLock lock(&loop->mutex_);
  loop->snapshot_ = loop->shard_->Stats();
  return loop;
}

ShardLoop::~ShardLoop() {
  Stop();
  if (arena_registered_) transport_->RemoveMemory(shard_->arena().data());
}

absl::Status ShardLoop::RegisterArena() {
  const MemoryRegion& arena = shard_->arena();
  CISTERN_RETURN_IF_ERROR(transport_->AddMemory(arena.data(), arena.bytes(), shard_->ram().slab_bytes()));
  arena_registered_ = true;
  return absl::OkStatus();
}

void ShardLoop::Start() {
  CISTERN_CHECK(!thread_.joinable() && mailbox_.fd() >= 0);
  thread_ = std::thread([this] { Run(); });
}

void ShardLoop::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_relaxed);
  (void)mailbox_.Post([] {});  // Wakes the sleep; a full mailbox is awake already.
  thread_.join();
}

bool ShardLoop::Post(std::function<void(NodeShard&)> task) {
  return mailbox_.Post([this, task = std::move(task)] { task(*shard_); });
}

NodeStats ShardLoop::LatestStats() {
  // One request at a time, however often somebody asks.
  if (!snapshot_asked_.exchange(true)) {
    const bool posted = mailbox_.Post([this] {
      NodeStats stats = shard_->Stats();
      {
        const MutexLock lock(&mutex_);
        snapshot_ = std::move(stats);
      }
      snapshot_asked_.store(false);
    });
    if (!posted) snapshot_asked_.store(false);
  }
  const MutexLock lock(&mutex_);
  return snapshot_;
}

void ShardLoop::Run() {
  Nanos last_work = clock_->Now();
  SpinWait spin;
  transport_->SetSpinning(true);
  while (!stop_.load(std::memory_order_relaxed)) {
    const bool posted = mailbox_.Drain();
    const bool worked = shard_->Poll();
    const Nanos now = clock_->Now();
    last_poll_.store(now, std::memory_order_relaxed);
    if (posted || worked) {
      last_work = now;
      spin.Reset();
    } else if (now - last_work < kSpinAfterWork && !transport_->AwaitsBulk()) {
      spin.Once();
    } else {
      Sleep(now);
    }
  }
  shard_->Shutdown(absl::UnavailableError("node is shutting down"));
  if (shard_->disk() != nullptr) shard_->disk()->Stop(kDiskStopMax);
}

void ShardLoop::Sleep(Nanos now) {
  const Nanos until = std::min(shard_->NextWake(), now + kShardSleepMax);
  if (until <= now || !transport_->PrepareWait()) return;
  const int disk = shard_->disk() == nullptr ? -1 : shard_->disk()->WaitFd();
  pollfd fds[3] = {{.fd = mailbox_.fd(), .events = POLLIN, .revents = 0},
                   {.fd = transport_->WaitFd(), .events = POLLIN, .revents = 0},
                   {.fd = disk, .events = POLLIN, .revents = 0}};  // A negative one is left out.
  const timespec timeout{.tv_sec = (until - now) / kSecond, .tv_nsec = (until - now) % kSecond};
  transport_->SetSpinning(false);  // Before anything can come that would have to wake us.
  ::ppoll(fds, 3, &timeout, nullptr);
  transport_->SetSpinning(true);
}

}  // namespace cistern
