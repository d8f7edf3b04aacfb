#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/bench.h"
#include "client/cli/bench_cluster.h"
#include "client/cli/bench_memory.h"
#include "client/cli/bench_pace.h"
#include "client/cli/bench_socket.h"
#include "client/cli/bench_stores.h"
#include "client/cli/content.h"
#include "client/cli/plain_layout.h"
#include "client/internal/admin.h"
#include "core/random.h"
#include "core/size.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint64_t kPurpose = 0x4ead;  // Of the chains: the same blocks serve run after run.
constexpr uint64_t kSeed = 7;          // Of the order in which they are read.
constexpr int kFillRoundsMax = 3;

constexpr uint64_t kStoredPartBytes = uint64_t{1} << 20;
constexpr uint32_t kStoredParts = 4;         // A store.
constexpr uint64_t kStoredFrom = 64u << 20;  // Bytes of the memory that is stored from.

// What the same client stores between and during its reads, one store at a time: the load beside which they
// are measured.
class StoresBeside {
 public:
  StoresBeside(Client& client, uint32_t block_tokens, uint64_t bytes_per_s, std::byte* memory)
      : client_(client),
        stores_(client, PlainLayout(block_tokens, kStoredPartBytes), kStoredPartBytes, kStoredParts, memory,
                kStoredFrom / kStoredPartBytes),
        pace_(bytes_per_s, kStoredPartBytes * kStoredParts) {}
  ~StoresBeside() {
    while (under_way_) client_.Poll();  // Ends by the store's deadline.
  }
  // Begins the next one where it is time for it and the one before has ended.
  void Pump() {
    if (under_way_ || !pace_.TakeTurn()) return;
    FreshStores::Next next = stores_.Take();
    if (next.chain == nullptr) {
      stores_.Prepare();
      next = stores_.Take();
    }
    if (next.chain == nullptr) {
      failed_ = true;
      return;
    }
    under_way_ = true;
    client_.Store(*next.chain, 0, next.pages, {}, [this](const StoreReport& report) {
      under_way_ = false;
      failed_ = failed_ || !IsStored(report);
    });
  }
  // Whether one has failed since the last call: then the load was not what was asked for.
  bool TakeFailed() { return std::exchange(failed_, false); }

 private:
  Client& client_;
  FreshStores stores_;
  BenchPace pace_;
  bool under_way_ = false;
  bool failed_ = false;
};

// Lookup and read of a random chain of `batch` parts, into the next `batch` pages of more memory than any
// cache holds.
class ReadOp final : public BenchOp {
 public:
  ReadOp(Client& client, std::vector<Chain> chains, const BenchOptions& bench, std::byte* memory,
         size_t pages)
      : client_(client),
        chains_(std::move(chains)),
        batch_(bench.batch),
        size_(bench.size_bytes),
        pace_(bench.rate_bytes, size_ * batch_),
        random_(kSeed) {
    for (size_t i = 0; i < pages; ++i) pages_.emplace_back(memory + i * size_, size_);
  }
  void SetStores(StoresBeside* stores) { stores_ = stores; }
  bool Await() override {
    const bool waited = pace_.Await();
    if (stores_ == nullptr) return waited;
    stores_->Pump();
    return true;
  }
  BenchStep Step() override {
    // The warm-up takes the chains in turn, so that each part's memory has been seen before anything is
    // measured.
    const size_t chain = warmed_ < chains_.size() ? warmed_++ : random_.Below(chains_.size());
    const LoadReport report = client_.FetchWait(chains_[chain], std::span(pages_).subspan(at_, batch_));
    at_ = at_ + 2 * batch_ <= pages_.size() ? at_ + batch_ : 0;
    const bool loaded = report.status.ok() && report.ok_pages() == batch_;
    const bool stored = stores_ == nullptr || !stores_->TakeFailed();
    return {.ok = loaded && stored, .bytes = size_ * batch_, .items = batch_};
  }
  uint64_t WarmSteps() const override {
    return std::max<uint64_t>(chains_.size(), pages_.size() / batch_) + 1;
  }

 private:
  Client& client_;
  const std::vector<Chain> chains_;
  const size_t batch_;
  const uint64_t size_;
  BenchPace pace_;
  StoresBeside* stores_ = nullptr;
  std::vector<Page> pages_;
  size_t at_ = 0;
  size_t warmed_ = 0;
  Random random_;
};

// Stores chains of `batch` blocks, `bytes` in all, and returns those that are there afterwards: where other
// data is more recent than ours the cache may drop some, and a bench of reads must not measure misses.
absl::StatusOr<std::vector<Chain>> Fill(Client& client, const BenchOptions& bench, uint64_t bytes,
                                        std::byte* memory, uint64_t memory_bytes) {
  const Layout layout = PlainLayout(bench.block_tokens, bench.size_bytes);
  const uint64_t count = std::max<uint64_t>(1, bytes / (bench.size_bytes * bench.batch));
  std::vector<Chain> all;
  for (uint64_t i = 0; i < count; ++i) {
    CISTERN_ASSIGN_OR_RETURN(Chain chain,
                             MakeBenchChain(client, layout, kPurpose + bench.batch, i, bench.batch));
    all.push_back(std::move(chain));
  }
  std::vector<Chain> there;
  for (int round = 0; round < kFillRoundsMax && there.size() < all.size(); ++round) {
    there.clear();
    for (const Chain& chain : all) CISTERN_RETURN_IF_ERROR(StoreChain(client, chain, memory, memory_bytes));
    for (const Chain& chain : all) {
      const Result<uint32_t> found = client.LookupWait(chain);
      if (found.ok() && found.value() == chain.blocks()) there.push_back(chain);
    }
  }
  if (there.size() * 2 < all.size()) {
    return absl::ResourceExhaustedError("the nodes keep only " + std::to_string(there.size()) + " of " +
                                        std::to_string(all.size()) +
                                        " prefixes; give them more --ram, or bench an idle cluster");
  }
  return there;
}

}  // namespace

absl::StatusOr<BenchReport> BenchRead(const CliOptions& options) {
  const BenchOptions& bench = options.bench;
  CISTERN_ASSIGN_OR_RETURN(const std::unique_ptr<BenchCluster> cluster, BenchCluster::Connect(options));
  const auto room =
      static_cast<uint64_t>(kBenchCapacityShare * static_cast<double>(cluster->capacity_bytes()));
  const uint64_t data_bytes = std::min(bench.data_bytes == 0 ? kBenchDataBytes : bench.data_bytes, room);
  if (data_bytes < bench.size_bytes * bench.batch) {
    return absl::ResourceExhaustedError(std::to_string(bench.batch) + " parts of " +
                                        FormatSize(bench.size_bytes) + " do not fit the nodes' RAM (" +
                                        FormatSize(cluster->capacity_bytes()) +
                                        "); give a smaller --size or --batch");
  }
  const size_t pages = std::max<size_t>(kBenchMemoryBytes / bench.size_bytes, bench.batch);
  const PrefaultedMemory memory(pages * bench.size_bytes);
  if (memory.data() == nullptr)
    return absl::ResourceExhaustedError("this machine has no " + FormatSize(memory.bytes()) +
                                        " left; free as much, or give a smaller --size or --batch");
  CISTERN_ASSIGN_OR_RETURN(std::vector<Chain> chains,
                           Fill(cluster->client(), bench, data_bytes, memory.data(), memory.bytes()));

  BenchReport report;
  report.path = cluster->path();
  BenchLimit limit;
  std::unique_ptr<SocketLimit> sockets;
  if (bench.limit && report.path == "map") {
    limit = MemcpyLimit(internal::MappedArenas(cluster->client()), memory.data(), memory.bytes(),
                        bench.size_bytes);
  } else if (bench.limit) {
    CISTERN_ASSIGN_OR_RETURN(sockets, SocketLimit::Create(bench.size_bytes, bench.batch, cluster->over_unix(),
                                                          memory.data(), memory.bytes()));
    limit = sockets->limit();
  }
  ReadOp op(cluster->client(), std::move(chains), bench, memory.data(), pages);
  std::optional<StoresBeside> stores;
  if (bench.stores_bytes != 0) {
    auto* from = static_cast<std::byte*>(cluster->client().AllocateBuffer(kStoredFrom));
    if (from == nullptr)
      return absl::ResourceExhaustedError("no memory to store from; raise the client's put window");
    FillContent(1, from, kStoredFrom);
    stores.emplace(cluster->client(), bench.block_tokens, bench.stores_bytes, from);
    op.SetStores(&*stores);
  }
  report.figures = RunSlices(op, limit, bench.seconds, [&] { return cluster->CpuSeconds(); });
  report.limit_name = limit.name;
  if (sockets != nullptr) {
    report.limit_name = sockets->name();
    report.figures.limit_gbps = sockets->gbps();
  }
  return report;
}

}  // namespace cistern
