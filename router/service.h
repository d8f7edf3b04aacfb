#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "router/router.h"

namespace cistern {

inline constexpr size_t kWatchersMax = 16384;

struct ServiceOptions {
  std::string listen = "127.0.0.1:7400";  // HOST:PORT; port 0 takes a free one.
  size_t watchers_max = kWatchersMax;
  Nanos watch_keep_alive = 10 * kSecond;  // A copy of the map to a watcher that has had none for this long.
  // With each new map, on the router's thread, before watchers get it.
  std::function<void(const ClusterMap&)> on_map = {};
  Nanos watch_slow_max = 30 * kSecond;  // A watcher that does not take a map for this long is cut off.
};

// The Cluster service over one Router: gRPC server, the router's thread, the watches. Handlers check what
// came, post to the router's thread and return; the reply is sent from there. Owner: router main or a test.
// Lifetime: serving from Start until Stop, which ends watches, answers what was accepted, and joins. `clock`
// outlives it.
class RouterService {
 public:
  // InvalidArgument: no address. Unavailable: the port is taken, or the host is not this machine's; one line.
  static absl::StatusOr<std::unique_ptr<RouterService>> Start(const ServiceOptions& options,
                                                              std::unique_ptr<Router> router, Clock& clock);
  ~RouterService();
  void Stop();

  const std::string& address() const;  // With the port that was really taken.
  // What GetStatus answers. Waits for the router's thread; Unavailable after `patience`.
  absl::StatusOr<ClusterStatus> Status(Nanos patience);
  size_t watchers() const;
  uint64_t watchers_cut_off() const;

 private:
  struct Impl;
  explicit RouterService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cistern
