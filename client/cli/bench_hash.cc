#include <openssl/evp.h>

#include <chrono>
#include <memory>
#include <vector>

#include "client/cli/bench.h"
#include "core/chain.h"
#include "core/cpu_time.h"
#include "core/random.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 3;  // Of the tokens.
constexpr size_t kLongInputBytes = size_t{1} << 20;

// Hashes one prompt of `blocks` blocks from its root.
class HashOp final : public BenchOp {
 public:
  HashOp(uint32_t blocks, uint32_t block_tokens)
      : block_tokens_(block_tokens), hasher_(ChainRoot{}), tokens_(size_t{blocks} * block_tokens) {
    Random random(kSeed);
    for (uint32_t& token : tokens_) token = static_cast<uint32_t>(random.Next());
  }
  BenchStep Step() override {
    keys_.clear();
    hasher_.Reset();
    hasher_.AppendAll(tokens_, block_tokens_, keys_);
    return {.ok = !keys_.empty(), .bytes = tokens_.size() * sizeof(uint32_t), .items = tokens_.size()};
  }
  uint64_t WarmSteps() const override { return 3; }

 private:
  const uint32_t block_tokens_;
  ChainHasher hasher_;
  std::vector<uint32_t> tokens_;
  std::vector<BlockKey> keys_;
};

// SHA-256 over one long input: what is left when neither framing, nor chaining, nor the fingerprint cost
// anything.
BenchLimit Sha256Limit() {
  const auto slice = [input = std::vector<uint8_t>(kLongInputBytes, 7)](double seconds) {
    using SteadyClock = std::chrono::steady_clock;
    const auto begin = SteadyClock::now();
    double took = 0;
    uint64_t bytes = 0;
    while (took < seconds) {
      uint8_t digest[EVP_MAX_MD_SIZE];
      if (EVP_Digest(input.data(), input.size(), digest, nullptr, EVP_sha256(), nullptr) != 1) return -1.0;
      bytes += input.size();
      took = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    }
    return static_cast<double>(bytes) / took / 1e9;
  };
  return {"sha256", slice};
}

}  // namespace

absl::StatusOr<BenchReport> BenchHash(const CliOptions& options) {
  HashOp op(options.bench.batch, options.bench.block_tokens);
  const BenchLimit limit = options.bench.limit ? Sha256Limit() : BenchLimit{};
  BenchReport report;
  report.figures = RunSlices(op, limit, options.bench.seconds, ProcessCpuSeconds);
  report.limit_name = limit.name;
  return report;
}

}  // namespace cistern
