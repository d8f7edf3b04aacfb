#include <algorithm>
#include <memory>
#include <string>

#include "client/cli/bench.h"
#include "client/cli/bench_cluster.h"
#include "client/cli/bench_memory.h"
#include "client/cli/bench_pace.h"
#include "client/cli/bench_socket.h"
#include "client/cli/bench_stores.h"
#include "client/cli/content.h"
#include "client/cli/plain_layout.h"
#include "core/size.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

// Stores a chain that nobody has stored before, from the next pages of the put window (or of plain memory).
class WriteOp final : public BenchOp {
 public:
  WriteOp(Client& client, const BenchOptions& bench, std::byte* memory, size_t pages)
      : client_(client),
        stores_(client, PlainLayout(bench.block_tokens, bench.size_bytes), bench.size_bytes, bench.batch,
                memory, pages),
        batch_(bench.batch),
        bytes_(bench.size_bytes * bench.batch),
        warm_steps_(pages / bench.batch + 1),
        pace_(bench.rate_bytes, bytes_) {}
  void Prepare(double) override { stores_.Prepare(); }
  bool Await() override { return pace_.Await(); }
  BenchStep Step() override {
    const FreshStores::Next next = stores_.Take();
    if (next.chain == nullptr) return {.more = false};
    return {.ok = IsStored(client_.StoreWait(*next.chain, 0, next.pages)), .bytes = bytes_, .items = batch_};
  }
  uint64_t WarmSteps() const override { return warm_steps_; }

 private:
  Client& client_;
  FreshStores stores_;
  const uint32_t batch_;
  const uint64_t bytes_, warm_steps_;
  BenchPace pace_;
};

}  // namespace

absl::StatusOr<BenchReport> BenchWrite(const CliOptions& options) {
  const BenchOptions& bench = options.bench;
  CISTERN_ASSIGN_OR_RETURN(const std::unique_ptr<BenchCluster> cluster, BenchCluster::Connect(options));
  const size_t pages = std::max<size_t>(kBenchMemoryBytes / bench.size_bytes, bench.batch);
  const size_t bytes = pages * bench.size_bytes;
  auto* source = static_cast<std::byte*>(cluster->client().AllocateBuffer(bytes));
  std::unique_ptr<PrefaultedMemory> heap;
  if (source == nullptr) {
    heap = std::make_unique<PrefaultedMemory>(bytes);
    source = heap->data();
  }
  if (source == nullptr)
    return absl::ResourceExhaustedError("this machine has no " + FormatSize(bytes) +
                                        " left; free as much, or give a smaller --size or --batch");
  FillContent(1, source, bytes);

  // One store connects to the nodes, so that the path is known.
  CISTERN_ASSIGN_OR_RETURN(
      const Chain first, MakeBenchChain(cluster->client(), PlainLayout(bench.block_tokens, bench.size_bytes),
                                        0xf1457, 0, bench.batch));
  CISTERN_RETURN_IF_ERROR(StoreChain(cluster->client(), first, source, bytes));
  BenchReport report;
  report.path = cluster->path();
  BenchLimit limit;
  std::unique_ptr<SocketLimit> sockets;
  std::unique_ptr<PrefaultedMemory> target;
  if (bench.limit && report.path == "map") {
    target = std::make_unique<PrefaultedMemory>(
        std::max<uint64_t>(std::min(kBenchDataBytes, cluster->capacity_bytes()), bytes));
    if (target->data() == nullptr) {
      return absl::ResourceExhaustedError("this machine has no " + FormatSize(target->bytes()) +
                                          " left for --limit; free as much, or bench without it");
    }
    limit = MemcpyScatterLimit(source, bytes, target->data(), target->bytes(), bench.size_bytes);
  } else if (bench.limit) {
    if (heap == nullptr)
      heap = std::make_unique<PrefaultedMemory>(bytes);  // Where the raw socket's bytes go.
    if (heap->data() == nullptr) {
      return absl::ResourceExhaustedError("this machine has no " + FormatSize(bytes) +
                                          " left for --limit; free as much, or bench without it");
    }
    CISTERN_ASSIGN_OR_RETURN(sockets, SocketLimit::Create(bench.size_bytes, bench.batch, cluster->over_unix(),
                                                          heap->data(), heap->bytes()));
    limit = sockets->limit();
  }
  WriteOp op(cluster->client(), bench, source, pages);
  report.figures = RunSlices(op, limit, bench.seconds, [&] { return cluster->CpuSeconds(); });
  report.limit_name = limit.name;
  if (sockets != nullptr) {
    report.limit_name = sockets->name();
    report.figures.limit_gbps = sockets->gbps();
  }
  return report;
}

}  // namespace cistern
