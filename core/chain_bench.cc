#include <benchmark/benchmark.h>
#include <openssl/evp.h>

#include <numeric>
#include <vector>

#include "core/chain.h"
#include "core/chain_stream.h"
#include "core/random.h"

// Tokens a second of the chain hash, with its limit beside it: SHA-256 alone over the same number of bytes a
// block.
namespace cistern {
namespace {

constexpr size_t kTokens = 1u << 17;  // A prompt of 128 k tokens.

std::vector<uint32_t> Prompt() {
  Random random(1);
  std::vector<uint32_t> tokens(kTokens);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random.Below(200'000));
  return tokens;
}

void CountTokens(benchmark::State& state) {
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(state.iterations()) * kTokens,
                                                  benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}

void BM_Chain(benchmark::State& state) {
  const std::vector<uint32_t> tokens = Prompt();
  const auto block_tokens = static_cast<uint32_t>(state.range(0));
  ChainHasher hasher(ChainRoot{});
  std::vector<BlockKey> keys;
  for (auto _ : state) {
    keys.clear();
    hasher.Reset();
    hasher.AppendAll(tokens, block_tokens, keys);
    benchmark::DoNotOptimize(keys.data());
  }
  CountTokens(state);
}
BENCHMARK(BM_Chain)->Arg(16)->Arg(64)->Arg(256)->Arg(1024);

// A conversation of 2^20 tokens grows by one.
void BM_AppendOneToken(benchmark::State& state) {
  ChainStream stream(ChainRoot{}, static_cast<uint32_t>(state.range(0)));
  stream.Append(std::vector<uint32_t>(1u << 20, 7));
  uint32_t token = 0;
  for (auto _ : state) stream.Append(token++);
}
BENCHMARK(BM_AppendOneToken)->Arg(16)->Arg(256);

void BM_LimitSha256(benchmark::State& state) {
  std::vector<uint32_t> tokens = Prompt();
  const auto block_tokens = static_cast<size_t>(state.range(0));
  EVP_MD* md = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestInit_ex2(context, md, nullptr);
  std::array<uint8_t, 32> digest;
  for (auto _ : state) {
    for (size_t at = 0; at + block_tokens <= tokens.size(); at += block_tokens) {
      // The tokens and, at most, the previous hash and the frame: 55 bytes more. Reads a little of the next
      // block instead.
      const size_t bytes = std::min(block_tokens * 4 + 55, (tokens.size() - at) * 4);
      EVP_DigestInit_ex2(context, nullptr, nullptr);
      EVP_DigestUpdate(context, &tokens[at], bytes);
      EVP_DigestFinal_ex(context, digest.data(), nullptr);
    }
    benchmark::DoNotOptimize(digest);
  }
  CountTokens(state);
  EVP_MD_CTX_free(context);
  EVP_MD_free(md);
}
BENCHMARK(BM_LimitSha256)->Arg(16)->Arg(64)->Arg(256)->Arg(1024);

}  // namespace
}  // namespace cistern
