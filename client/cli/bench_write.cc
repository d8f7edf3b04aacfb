#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/cli/bench.h"
#include "client/cli/bench_cluster.h"
#include "client/cli/bench_memory.h"
#include "client/cli/bench_socket.h"
#include "client/cli/content.h"
#include "client/cli/plain_layout.h"
#include "core/size.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint64_t kPreparedBytesFirst = uint64_t{256} << 20;
constexpr uint64_t kPreparedChainsMax = 1 << 17;

// Stores a chain that nobody has stored before, from the next pages of the put window (or of plain memory).
class WriteOp final : public BenchOp {
 public:
  WriteOp(Client& client, const BenchOptions& bench, std::byte* memory, size_t pages)
      : client_(client),
        layout_(PlainLayout(bench.block_tokens, bench.size_bytes)),
        batch_(bench.batch),
        size_(bench.size_bytes),
        rate_bytes_(bench.rate_bytes),
        // Another run's chains would be there already.
        purpose_(uint64_t{std::random_device()()} << 32 | std::random_device()()),
        want_(std::clamp<uint64_t>(kPreparedBytesFirst / (size_ * batch_), 4, kPreparedChainsMax)) {
    for (size_t i = 0; i < pages; ++i) pages_.emplace_back(memory + i * size_, size_);
  }
  // Hashing is the engine's work on both the read and the write side, and has a bench of its own.
  void Prepare(double) override {
    if (used_ == chains_.size() && used_ > 0) want_ = std::min(want_ * 2, kPreparedChainsMax);
    chains_.erase(chains_.begin(), chains_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ = 0;
    while (chains_.size() < want_) {
      absl::StatusOr<Chain> chain =
          MakeBenchChain(client_, layout_, purpose_, number_++, static_cast<uint32_t>(batch_));
      if (!chain.ok()) return;  // Step says that there is no more.
      chains_.push_back(*std::move(chain));
    }
  }
  BenchStep Step() override {
    if (used_ == chains_.size()) return {.more = false};
    WaitForTurn();
    const StoreReport report = client_.StoreWait(chains_[used_++], 0, std::span(pages_).subspan(at_, batch_));
    at_ = at_ + 2 * batch_ <= pages_.size() ? at_ + batch_ : 0;
    const bool ok =
        report.status.ok() && std::all_of(report.pages.begin(), report.pages.end(),
                                          [](PageResult page) { return page == PageResult::kOk; });
    return {.ok = ok, .bytes = size_ * batch_, .items = batch_};
  }
  uint64_t WarmSteps() const override { return pages_.size() / batch_ + 1; }

 private:
  // What was missed while the machine did something else is not made up for.
  void WaitForTurn() {
    if (rate_bytes_ == 0) return;
    const auto now = std::chrono::steady_clock::now();
    if (turn_ > now) std::this_thread::sleep_until(turn_);
    const double seconds = static_cast<double>(size_ * batch_) / static_cast<double>(rate_bytes_);
    turn_ = std::max(turn_, now) + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
  }

  Client& client_;
  const Layout layout_;
  const size_t batch_;
  const uint64_t size_;
  const uint64_t rate_bytes_;
  std::chrono::steady_clock::time_point turn_;
  const uint64_t purpose_;
  uint64_t want_;
  uint64_t number_ = 0;
  std::vector<Chain> chains_;
  size_t used_ = 0;
  std::vector<ConstPage> pages_;
  size_t at_ = 0;
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
    return absl::ResourceExhaustedError("this machine has no " + FormatSize(bytes) + " left");
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
                                          " left for --limit");
    }
    limit = MemcpyScatterLimit(source, bytes, target->data(), target->bytes(), bench.size_bytes);
  } else if (bench.limit) {
    if (heap == nullptr)
      heap = std::make_unique<PrefaultedMemory>(bytes);  // Where the raw socket's bytes go.
    if (heap->data() == nullptr) {
      return absl::ResourceExhaustedError("this machine has no " + FormatSize(bytes) + " left for --limit");
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
