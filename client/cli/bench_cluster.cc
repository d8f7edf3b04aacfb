#include "client/cli/bench_cluster.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <span>

#include "client/cli/connect.h"
#include "client/cli/plain_layout.h"
#include "client/internal/admin.h"
#include "core/cpu_time.h"
#include "core/random.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr std::chrono::milliseconds kStatsDeadline{2000};
constexpr std::chrono::milliseconds kStoreDeadline{10000};
constexpr uint64_t kStoreBytesMax = uint64_t{32} << 20;  // Of one call.
constexpr uint32_t kStorePagesMax = 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<BenchCluster>> BenchCluster::Connect(const CliOptions& options) {
  Result<std::unique_ptr<Client>> client = ConnectClient(options, [&](ClientOptions& o) {
    o.spin = !options.bench.no_spin;
    if (options.bench.op == "write") o.window_bytes = kBenchMemoryBytes + (size_t{32} << 20);
  });
  if (!client.ok()) return absl::UnavailableError(client.status().message());
  std::unique_ptr<BenchCluster> out(new BenchCluster);
  out->client_ = std::move(client.value());
  for (const NodeEntry& node : internal::Map(*out->client_).nodes) {
    if (node.state == NodeState::kActive) out->nodes_.push_back(node.id);
  }
  if (out->nodes_.empty())
    return absl::UnavailableError("the cluster at " + options.router +
                                  " has no active node; see 'cistern status'");
  double ignored = 0;
  CISTERN_RETURN_IF_ERROR(out->Stats(&ignored, &out->capacity_bytes_));
  return out;
}

absl::Status BenchCluster::Stats(double* cpu_seconds, uint64_t* capacity_bytes) {
  *cpu_seconds = ProcessCpuSeconds();
  uint64_t capacity = 0;
  for (const std::string& node : nodes_) {
    const absl::StatusOr<NodeStats> stats = internal::FetchNodeStats(*client_, node, kStatsDeadline);
    if (!stats.ok())
      return absl::UnavailableError(node + " does not answer: " + Words(stats.status()) +
                                    "; see 'cistern status'");
    *cpu_seconds += stats->cpu_seconds;
    for (const TierStats& tier : stats->tiers) {
      if (tier.tier == "ram") capacity += tier.capacity_bytes;
    }
  }
  if (capacity_bytes != nullptr) *capacity_bytes = capacity;
  return absl::OkStatus();
}

double BenchCluster::CpuSeconds() {
  double seconds = 0;
  return Stats(&seconds, nullptr).ok() ? seconds : 0;
}

std::string BenchCluster::path() {
  std::set<std::string> kinds;
  for (const PeerRow& row : internal::Peers(*client_)) {
    if (row.state == "up") kinds.insert(std::string(PathKindName(row.path.kind)));
  }
  return kinds.size() == 1 ? *kinds.begin() : "mixed";
}

bool BenchCluster::over_unix() {
  const std::vector<PeerRow> rows = internal::Peers(*client_);
  return std::all_of(rows.begin(), rows.end(), [](const PeerRow& row) { return row.path.device == "unix"; });
}

absl::StatusOr<Chain> MakeBenchChain(Client& client, const Layout& layout, uint64_t purpose, uint64_t number,
                                     uint32_t blocks) {
  std::vector<uint32_t> tokens(size_t{layout.block_tokens} * blocks);
  Random random(purpose * 0x9e3779b97f4a7c15 + number);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random.Next());
  Result<Chain> chain = client.MakeChain(layout, tokens);
  if (!chain.ok()) return absl::InvalidArgumentError(chain.status().message());
  return chain.value();
}

absl::Status StoreChain(Client& client, const Chain& chain, std::byte* memory, uint64_t memory_bytes) {
  const uint64_t size = chain.layout().part_bytes;
  const auto pages_max = static_cast<uint32_t>(
      std::clamp<uint64_t>(std::min(memory_bytes, kStoreBytesMax) / size, 1, kStorePagesMax));
  CallOptions within;
  within.deadline = kStoreDeadline;
  for (uint32_t first = 0; first < chain.blocks();) {
    const uint32_t count = std::min(pages_max, chain.blocks() - first);
    std::vector<ConstPage> pages;
    for (uint32_t i = 0; i < count; ++i) pages.emplace_back(memory + i * size, size);
    const StoreReport report = client.StoreWait(chain, first, pages, within);
    if (!report.status.ok()) return absl::UnavailableError(report.status.message());
    for (PageResult page : report.pages) {
      if (page != PageResult::kOk && page != PageResult::kExists) {
        return absl::UnavailableError(std::string("a part could not be stored: ") + PageResultName(page) +
                                      "; see 'cistern status' for room and state of the nodes");
      }
    }
    first += count;
  }
  return absl::OkStatus();
}

}  // namespace cistern
