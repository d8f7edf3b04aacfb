#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/formats/bf16.h"
#include "core/formats/kernels.h"
#include "core/formats/scaled.h"
#include "core/random.h"

// Bulk conversions of random parts to cold destinations, with memcpy of the larger side, bf16, beside them:
// all rates are bytes of bf16. Compare figures of one run only; run with
// --benchmark_enable_random_interleaving=true
// --benchmark_repetitions=5, so that a busy machine slows all of them alike.
namespace cistern {
namespace {

constexpr size_t kRegionBytes = 256u << 20;
constexpr size_t kPairs = 1u << 12;  // Random (from, to) pairs, gone through in a circle.
constexpr size_t kGroup = 128;       // Elements a scale.
constexpr float kScale = 0.0123F;

// Prefaulted; kept until the process ends.
std::byte* Region(uint64_t seed) {
  void* at =
      mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (at == MAP_FAILED) {
    std::perror("mmap");
    std::exit(2);
  }
  Random random(seed);
  auto* values = static_cast<uint16_t*>(at);
  for (size_t i = 0; i < kRegionBytes / sizeof(uint16_t); ++i)
    values[i] = FloatToBf16(static_cast<float>(random.Unit() * 8 - 4));
  return static_cast<std::byte*>(at);
}

using Convert = void (*)(const FormatKernels& kernels, const std::byte* from, size_t elements, std::byte* to);

void PlainMemcpy(const FormatKernels&, const std::byte* from, size_t elements, std::byte* to) {
  std::memcpy(to, from, elements * sizeof(uint16_t));
}
void EncodeE4m3(const FormatKernels& k, const std::byte* from, size_t elements, std::byte* to) {
  k.e4m3_encode(from, elements, kScale, reinterpret_cast<uint8_t*>(to));
}
void EncodeE4m3Pow2(const FormatKernels& k, const std::byte* from, size_t elements, std::byte* to) {
  k.e4m3_encode(from, elements, 0x1p-5F, reinterpret_cast<uint8_t*>(to));
}
void DecodeE4m3(const FormatKernels& k, const std::byte* from, size_t elements, std::byte* to) {
  k.e4m3_decode(reinterpret_cast<const uint8_t*>(from), elements, kScale, to);
}
void EncodeInt8(const FormatKernels& k, const std::byte* from, size_t elements, std::byte* to) {
  k.int8_encode(from, elements, kScale, reinterpret_cast<int8_t*>(to));
}
void DecodeInt8(const FormatKernels& k, const std::byte* from, size_t elements, std::byte* to) {
  k.int8_decode(reinterpret_cast<const int8_t*>(from), elements, kScale, to);
}
// With the search for the largest values, a scale for each group; by the kernels that were chosen.
void EncodeE4m3ByGroup(const FormatKernels&, const std::byte* from, size_t elements, std::byte* to) {
  static std::vector<float> scales;
  scales.resize(elements / kGroup);
  EncodeE4m3Groups({from, elements * 2}, kGroup, {reinterpret_cast<uint8_t*>(to), elements},
                   absl::MakeSpan(scales));
}
void EncodeInt8ByGroup(const FormatKernels&, const std::byte* from, size_t elements, std::byte* to) {
  static std::vector<float> scales;
  scales.resize(elements / kGroup);
  EncodeInt8Groups({from, elements * 2}, kGroup, {reinterpret_cast<int8_t*>(to), elements},
                   absl::MakeSpan(scales));
}

// state.range(0): bytes of bf16 a part.
void Parts(benchmark::State& state, Convert convert, const FormatKernels* kernels) {
  if (kernels == nullptr) {
    state.SkipWithError("this CPU has no such instructions");
    return;
  }
  static std::byte* const from = Region(1);
  static std::byte* const to = Region(2);
  const auto bytes = static_cast<size_t>(state.range(0));
  struct Pair {
    const std::byte* from;
    std::byte* to;
  };
  Random random(3);
  std::vector<Pair> pairs(kPairs);
  for (Pair& pair : pairs) {
    pair.from = from + random.Below(kRegionBytes / bytes) * bytes;
    pair.to = to + random.Below(kRegionBytes / bytes) * bytes;
  }
  size_t next = 0;
  for (auto _ : state) {
    const Pair& pair = pairs[next++ % kPairs];
    convert(*kernels, pair.from, bytes / sizeof(uint16_t), pair.to);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

void RegisterAll() {
  const auto add = [](const std::string& name, Convert convert, const FormatKernels* kernels) {
    benchmark::RegisterBenchmark(name.c_str(), Parts, convert, kernels)
        ->Arg(64 << 10)
        ->Arg(1 << 20)
        ->Arg(4 << 20);
  };
  add("limit_memcpy", PlainMemcpy, &ScalarKernels());
  add("chosen_e4m3_encode_groups", EncodeE4m3ByGroup, &Kernels());
  add("chosen_int8_encode_groups", EncodeInt8ByGroup, &Kernels());
  const struct {
    const char* name;
    const FormatKernels* kernels;
  } kinds[] = {{"scalar", &ScalarKernels()}, {"avx2", Avx2Kernels()}, {"avx512", Avx512Kernels()}};
  for (const auto& kind : kinds) {
    const std::string prefix = std::string(kind.name) + "_";
    add(prefix + "e4m3_encode", EncodeE4m3, kind.kernels);
    add(prefix + "e4m3_encode_pow2", EncodeE4m3Pow2, kind.kernels);
    add(prefix + "e4m3_decode", DecodeE4m3, kind.kernels);
    add(prefix + "int8_encode", EncodeInt8, kind.kernels);
    add(prefix + "int8_decode", DecodeInt8, kind.kernels);
  }
}
[[maybe_unused]] const bool kRegistered = (RegisterAll(), true);

}  // namespace
}  // namespace cistern
