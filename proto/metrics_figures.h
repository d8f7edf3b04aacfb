#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <vector>

#include "core/node_stats.h"
#include "proto/control.h"

namespace cistern {

// The figures of `cistern status` by the same names, as Prometheus' library takes them:
// `cistern_<room>_<name>`; counters are those that end in _total. What a name may not have becomes _xHH, so
// that two names never become one. Thread: any one.
std::vector<prometheus::MetricFamily> NodeMetrics(const NodeStats& stats,
                                                  const std::vector<uint64_t>& shard_last_poll_ms_ago);
std::vector<prometheus::MetricFamily> RouterMetrics(const ClusterStatus& status);

}  // namespace cistern
