#include <algorithm>

#include "benchmark/benchmark.h"
#include "core/check.h"
#include "transport/messages.h"

// What a request for a long prefix costs to write and to read, warm.
namespace cistern {
namespace {

ChainRequest Request(size_t blocks) {
  ChainRequest request;
  request.coords.resize(1);
  request.blocks.resize(blocks);
  for (size_t at = 0; at < blocks; at += 8) {
    request.runs.push_back({{}, 0, static_cast<uint32_t>(std::min<size_t>(8, blocks - at))});
  }
  return request;
}

void EncodeChainRequest(benchmark::State& state) {
  const ChainRequest request = Request(static_cast<size_t>(state.range(0)));
  Bytes out;
  for (auto _ : state) {
    out.clear();
    request.Encode(out);
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(EncodeChainRequest)->Arg(16)->Arg(4096);

void DecodeChainRequest(benchmark::State& state) {
  Bytes body;
  Request(static_cast<size_t>(state.range(0))).Encode(body);
  ChainRequest request;
  for (auto _ : state) CISTERN_CHECK(request.Decode(body).ok());
}
BENCHMARK(DecodeChainRequest)->Arg(16)->Arg(4096);

void DecodePlanReply(benchmark::State& state) {
  PlanReply reply;
  reply.parts.resize(static_cast<size_t>(state.range(0)));
  for (size_t i = 0; i < reply.parts.size(); ++i) reply.parts[i].block.fingerprint = i;
  Bytes body;
  reply.Encode(body);
  for (auto _ : state) CISTERN_CHECK(reply.Decode(body).ok());
}
BENCHMARK(DecodePlanReply)->Arg(16)->Arg(4096);

}  // namespace
}  // namespace cistern
