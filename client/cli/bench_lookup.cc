#include <memory>
#include <string>

#include "client/cli/bench.h"
#include "client/cli/bench_cluster.h"
#include "client/cli/bench_memory.h"
#include "client/cli/plain_layout.h"
#include "core/size.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint64_t kPurpose = 0x10c4;  // Of the chain: the same blocks serve run after run.

class LookupOp final : public BenchOp {
 public:
  LookupOp(Client& client, Chain chain) : client_(client), chain_(std::move(chain)) {}
  BenchStep Step() override {
    const Result<uint32_t> found = client_.LookupWait(chain_);
    return {.ok = found.ok() && found.value() == chain_.blocks(), .items = chain_.blocks()};
  }
  uint64_t WarmSteps() const override { return 20; }

 private:
  Client& client_;
  const Chain chain_;
};

}  // namespace

absl::StatusOr<BenchReport> BenchLookup(const CliOptions& options) {
  const BenchOptions& bench = options.bench;
  CISTERN_ASSIGN_OR_RETURN(const std::unique_ptr<BenchCluster> cluster, BenchCluster::Connect(options));
  const uint64_t bytes = bench.size_bytes * bench.batch;
  if (static_cast<double>(bytes) > kBenchCapacityShare * static_cast<double>(cluster->capacity_bytes())) {
    return absl::ResourceExhaustedError("a prefix of " + std::to_string(bench.batch) + " blocks of " +
                                        FormatSize(bench.size_bytes) + " does not fit the nodes' RAM (" +
                                        FormatSize(cluster->capacity_bytes()) +
                                        "); give a smaller --size or --batch");
  }
  CISTERN_ASSIGN_OR_RETURN(
      Chain chain, MakeBenchChain(cluster->client(), PlainLayout(bench.block_tokens, bench.size_bytes),
                                  kPurpose, bench.batch, bench.batch));
  const PrefaultedMemory memory(uint64_t{32} << 20);
  if (memory.data() == nullptr)
    return absl::ResourceExhaustedError("this machine has no 32 MiB of memory left; free as much");
  CISTERN_RETURN_IF_ERROR(StoreChain(cluster->client(), chain, memory.data(), memory.bytes()));
  LookupOp op(cluster->client(), std::move(chain));
  BenchReport report;
  report.figures = RunSlices(op, BenchLimit{}, bench.seconds, [&] { return cluster->CpuSeconds(); });
  report.path = cluster->path();
  return report;
}

}  // namespace cistern
