#include "router/watch_hub.h"

#include <optional>
#include <utility>

namespace cistern {

// One watch. gRPC calls it on its threads, the hub on the router's. Lives until OnDone, and as long as
// someone calls it.
class WatchReactor final : public grpc::ServerWriteReactor<proto::ClusterMap>,
                           public std::enable_shared_from_this<WatchReactor> {
 public:
  WatchReactor(WatchHub& hub, grpc::CallbackServerContext& context, Clock& clock)
      : hub_(hub), context_(context), clock_(clock), since_(clock.Now()) {}

  void Offer(SharedMap map) {
    const absl::MutexLock lock(&mutex_);
    // A first map and a new one may come in any order.
    if (finished_ || ending_ || map->epoch() <= offered_epoch_) return;
    offered_epoch_ = map->epoch();
    waiting_ = std::move(map);
    if (!writing_) WriteNext();
  }

  // Sends the newest map again after silence; true when the reader was found too slow and is being cut off.
  bool Turn(const SharedMap& latest, Nanos now, Nanos keep_alive, Nanos slow_max) {
    const absl::MutexLock lock(&mutex_);
    if (finished_ || ending_) return false;
    if (writing_) {
      if (now - since_ <= slow_max) return false;
      ending_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "watcher reads too slowly; watch again");
      context_.TryCancel();  // Ends the write; OnWriteDone finishes.
      return true;
    }
    if (latest && now - since_ >= keep_alive) {
      waiting_ = latest;
      WriteNext();
    }
    return false;
  }

  void End(grpc::Status status) {
    const absl::MutexLock lock(&mutex_);
    if (finished_ || ending_) return;
    if (!writing_) return FinishLocked(std::move(status));
    ending_ = std::move(status);  // OnWriteDone follows; the server's shutdown cancels a write that hangs.
  }

  void OnWriteDone(bool ok) override {
    const auto self = shared_from_this();
    const absl::MutexLock lock(&mutex_);
    writing_.reset();
    if (finished_) return;
    if (ending_) return FinishLocked(*std::exchange(ending_, std::nullopt));
    if (!ok) return FinishLocked(grpc::Status::CANCELLED);
    if (waiting_) WriteNext();
  }

  void OnCancel() override {
    const auto self = shared_from_this();
    const absl::MutexLock lock(&mutex_);
    if (finished_ || writing_) return;  // OnWriteDone follows and finishes.
    FinishLocked(grpc::Status::CANCELLED);
  }

  void OnDone() override { hub_.Forget(this); }

 private:
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    writing_ = std::exchange(waiting_, nullptr);
    since_ = clock_.Now();
    StartWrite(writing_.get());
  }
  void FinishLocked(grpc::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    finished_ = true;
    Finish(std::move(status));
  }

  WatchHub& hub_;
  grpc::CallbackServerContext& context_;
  Clock& clock_;
  absl::Mutex mutex_;
  SharedMap writing_ ABSL_GUARDED_BY(mutex_);
  SharedMap waiting_ ABSL_GUARDED_BY(mutex_);
  uint64_t offered_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  Nanos since_ ABSL_GUARDED_BY(mutex_);  // The last write's begin.
  std::optional<grpc::Status> ending_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

grpc::ServerWriteReactor<proto::ClusterMap>* WatchHub::Open(grpc::CallbackServerContext& context,
                                                            uint64_t known_epoch) {
  const auto reactor = std::make_shared<WatchReactor>(*this, context, clock_);
  SharedMap first;
  std::optional<grpc::Status> refusal;
  {
    const absl::MutexLock lock(&mutex_);
    if (closed_) refusal = grpc::Status(grpc::StatusCode::UNAVAILABLE, "router is stopping");
    if (watchers_.size() >= limits_.watchers_max) {
      refusal = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watchers (kWatchersMax)");
    }
    watchers_.emplace(reactor.get(), reactor);  // Refused ones too: OnDone removes them.
    if (latest_ && latest_->epoch() != known_epoch) first = latest_;
  }
  if (refusal) {
    reactor->End(*refusal);
  } else if (first) {
    reactor->Offer(std::move(first));
  }
  return reactor.get();
}

std::vector<std::shared_ptr<WatchReactor>> WatchHub::Snapshot() const {
  const absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<WatchReactor>> all;
  all.reserve(watchers_.size());
  for (const auto& [raw, reactor] : watchers_) all.push_back(reactor);
  return all;
}

void WatchHub::Publish(const SharedMap& map) {
  {
    const absl::MutexLock lock(&mutex_);
    latest_ = map;
  }
  for (const auto& reactor : Snapshot()) reactor->Offer(map);
}

void WatchHub::Turn() {
  const Nanos now = clock_.Now();
  SharedMap latest;
  {
    const absl::MutexLock lock(&mutex_);
    if (watchers_.empty()) return;
    latest = latest_;
  }
  uint64_t slow = 0;
  for (const auto& reactor : Snapshot())
    slow += reactor->Turn(latest, now, limits_.keep_alive, limits_.slow_max);
  if (slow == 0) return;
  const absl::MutexLock lock(&mutex_);
  cut_off_ += slow;
}

void WatchHub::Close() {
  {
    const absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  for (const auto& reactor : Snapshot())
    reactor->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "router is stopping"));
}

void WatchHub::Forget(WatchReactor* reactor) {
  std::shared_ptr<WatchReactor> last;  // Destroyed after the lock is free.
  const absl::MutexLock lock(&mutex_);
  const auto at = watchers_.find(reactor);
  if (at == watchers_.end()) return;
  last = std::move(at->second);
  watchers_.erase(at);
}

size_t WatchHub::watchers() const {
  const absl::MutexLock lock(&mutex_);
  return watchers_.size();
}
uint64_t WatchHub::cut_off() const {
  const absl::MutexLock lock(&mutex_);
  return cut_off_;
}

}  // namespace cistern
