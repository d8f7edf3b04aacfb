#include "proto/metrics_figures.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace cistern {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::array<NodeState, 4> kStates = {NodeState::kJoining, NodeState::kActive, NodeState::kDraining,
                                              NodeState::kGone};

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string Escaped(std::string_view name) {
  std::string out;
  for (const char c : name) {
    char raw[5] = {c};
    if (!IsPlain(c)) std::snprintf(raw, sizeof(raw), "_x%02x", static_cast<unsigned char>(c));
    out += raw;
  }
  return out;
}

class Families {
 public:
  explicit Families(std::string_view room) : prefix_("cistern_" + std::string(room) + "_") {}

  // Values of one name are added one after the other.
  template <typename Value>
  void Add(std::string_view name, Value value, std::vector<ClientMetric::Label> labels = {}) {
    const std::string full = prefix_ + Escaped(name);
    if (families_.empty() || families_.back().name != full) {
      const MetricType type = full.ends_with("_total") ? MetricType::Counter : MetricType::Gauge;
      families_.push_back({full, "", type, {}});
    }
    ClientMetric metric;
    metric.label = std::move(labels);
    (families_.back().type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        static_cast<double>(value);
    families_.back().metric.push_back(std::move(metric));
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  const std::string prefix_;
  std::vector<MetricFamily> families_;
};

}  // namespace

std::vector<MetricFamily> NodeMetrics(const NodeStats& stats,
                                      const std::vector<uint64_t>& shard_last_poll_ms_ago) {
  Families families("node");
  for (const auto& [name, value] : stats.counters) families.Add(name, value);
  families.Add("cpu_seconds_total", stats.cpu_seconds);
  for (const TierStats& tier : stats.tiers)
    families.Add("tier_used_bytes", tier.used_bytes, {{"tier", tier.tier}});
  for (const TierStats& tier : stats.tiers)
    families.Add("tier_capacity_bytes", tier.capacity_bytes, {{"tier", tier.tier}});
  for (const TierStats& tier : stats.tiers) families.Add("tier_parts", tier.parts, {{"tier", tier.tier}});
  for (size_t i = 0; i < shard_last_poll_ms_ago.size(); ++i)
    families.Add("shard_last_poll_ms_ago", shard_last_poll_ms_ago[i], {{"shard", std::to_string(i)}});
  return families.Take();
}

std::vector<MetricFamily> RouterMetrics(const ClusterStatus& status) {
  Families families("router");
  for (const auto& [name, value] : status.counters) families.Add(name, value);
  families.Add("epoch", status.map.epoch);
  families.Add("uptime_ms", status.uptime_ms);
  for (const NodeState state : kStates) {
    const auto count = std::count_if(status.map.nodes.begin(), status.map.nodes.end(),
                                     [state](const NodeEntry& node) { return node.state == state; });
    families.Add("nodes", count, {{"state", std::string(NodeStateName(state))}});
  }
  return families.Take();
}

}  // namespace cistern
