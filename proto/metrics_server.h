#pragma once

#include <prometheus/metric_family.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/clock.h"

namespace cistern {

inline constexpr int kMetricsThreads = 4;               // So many scrapes at once; others wait for them.
inline constexpr Nanos kMetricsDeadline = 2 * kSecond;  // Of one connection that says nothing.

// Today's figures; none when they could not be had in time.
using MetricsSource = std::function<std::vector<prometheus::MetricFamily>()>;

// Answers GET /metrics over HTTP for Prometheus, on threads of prometheus-cpp's own, so that nothing that
// serves waits for it. Owner: main of router or node. Lifetime: `source` is called on those threads until the
// destructor has returned.
class MetricsServer {
 public:
  // listen: HOST:PORT, port 0 for any free one. InvalidArgument, Unavailable: one line that names it.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen,
                                                              MetricsSource source);
  ~MetricsServer();
  const std::string& address() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cistern
