#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/router.h"
#include "router/service.h"

namespace cistern {

inline constexpr Nanos kTestPatience = 20 * kSecond;  // Only a broken build waits this long.

// Holds a value that other threads change; a test waits for what it wants to see, without sleeping.
template <typename T>
class Watched {
 public:
  void Change(const std::function<void(T&)>& change) {
    const absl::MutexLock lock(&mutex_);
    change(value_);
  }
  bool WaitUntil(std::function<bool(const T&)> wanted, Nanos patience = kTestPatience) {
    const absl::MutexLock lock(&mutex_);
    const auto holds = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return wanted(value_); };
    return mutex_.AwaitWithTimeout(absl::Condition(&holds), absl::Nanoseconds(patience));
  }
  T Get() {
    const absl::MutexLock lock(&mutex_);
    return value_;
  }

 private:
  absl::Mutex mutex_;
  T value_ ABSL_GUARDED_BY(mutex_){};
};

// A real router service on a free loopback port, over a store that outlives it.
class ServiceFixture : public testing::Test {
 protected:
  void StartRouter(ServiceOptions options = {}, RouterConfig config = {}) {
    options.listen = listen_;
    absl::StatusOr<std::unique_ptr<Router>> router = Router::Create(config, key_, store_, clock_, random_);
    ASSERT_TRUE(router.ok()) << router.status();
    cluster_ = (*router)->cluster();
    absl::StatusOr<std::unique_ptr<RouterService>> service =
        RouterService::Start(options, *std::move(router), clock_);
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    listen_ = service_->address();  // A restart comes back to the same address.
  }
  void StopRouter() { service_.reset(); }
  const std::string& address() const { return listen_; }

  BootClock clock_;
  Random random_{7};
  const ClusterKey key_ = ClusterKey::Generate();
  MemoryStateStore store_;
  ClusterId cluster_;
  std::string listen_ = "127.0.0.1:0";
  std::unique_ptr<RouterService> service_;
};

}  // namespace cistern
