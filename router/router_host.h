#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "core/mailbox.h"
#include "router/router.h"

namespace cistern {

// Gives a Router its one thread: runs what is posted, ticks in time, tells of each new epoch. Writing the
// state is done on this thread too: changes are rare, and a reply must not go out before its change is on
// disk. Owner: router main or a test. Lifetime: Start once; Stop runs what was posted before it, then joins.
class RouterHost {
 public:
  // Both run on the router's thread: on_map at the start and after each new epoch, on_turn after every turn
  // of the loop (at least each kTickMax).
  struct Hooks {
    std::function<void(const ClusterMap&)> on_map;
    std::function<void()> on_turn;
  };

  RouterHost(std::unique_ptr<Router> router, Clock& clock);
  ~RouterHost();
  RouterHost(const RouterHost&) = delete;
  RouterHost& operator=(const RouterHost&) = delete;

  void Start(Hooks hooks);
  void Stop();
  // False when the mailbox is full or the host has stopped; `task` is then never run. Thread: any.
  [[nodiscard]] bool Post(std::function<void(Router&)> task);

 private:
  void Run();

  std::unique_ptr<Router> router_;  // Router's thread once started.
  Clock& clock_;
  Hooks hooks_;
  Mailbox mailbox_;
  bool stopping_ = false;  // Router's thread.
  absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: joined before the rest goes.
};

}  // namespace cistern
