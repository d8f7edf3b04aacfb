#pragma once

#include <poll.h>

#include <chrono>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "cistern/client.h"

namespace cistern::py {

inline constexpr std::chrono::seconds kCloseWaitMax{2};  // For cancelled calls to end in close().
inline constexpr int kCloseTickMs = 10;                  // Another thread may have polled what we wait for.

// Submitted calls whose callback has not been told yet, for closing. Any thread. Owners: the client's Python
// object and each call.
class Outstanding {
 public:
  void Began(CallId call, bool& told) {
    const std::lock_guard lock(mutex_);
    if (!told) live_.insert(call);
  }
  void Told(CallId call, bool& told) {
    const std::lock_guard lock(mutex_);
    told = true;
    live_.erase(call);
  }
  std::vector<CallId> Live() {
    const std::lock_guard lock(mutex_);
    return {live_.begin(), live_.end()};
  }

  // Cancels all and drives the client until they are told. Without the GIL.
  void End(Client& client) {
    const auto end = std::chrono::steady_clock::now() + kCloseWaitMax;
    for (std::vector<CallId> live = Live(); !live.empty(); live = Live()) {
      for (const CallId call : live) client.Cancel(call);
      if (client.Poll()) continue;
      if (std::chrono::steady_clock::now() > end)
        return;  // They end with the client, when its last owner goes.
      pollfd ready{client.event_fd(), POLLIN, 0};
      poll(&ready, 1, kCloseTickMs);
    }
  }

 private:
  std::mutex mutex_;
  std::unordered_set<CallId> live_;
};

}  // namespace cistern::py
