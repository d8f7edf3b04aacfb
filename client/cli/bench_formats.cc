#include <array>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/bench.h"
#include "client/cli/bench_memory.h"
#include "client/cli/output.h"
#include "core/formats/bf16.h"
#include "core/formats/break_even.h"
#include "core/formats/compression.h"
#include "core/formats/kernels.h"
#include "core/random.h"
#include "core/size.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

constexpr size_t kMemoryBytes = size_t{128} << 20;  // Of bf16, on either side: more than caches hold.
constexpr uint64_t kSeed = 11;
constexpr std::array<StoredForm, 3> kForms = {StoredForm::kE4m3, StoredForm::kInt8, StoredForm::kInt4};

// Parts of a GQA layout: K and V of 128 elements beside each other, 32 tokens of one head in a sequence.
constexpr uint32_t kTokens = 32, kElements = 128;
constexpr uint64_t kSequenceBytes = uint64_t{kTokens} * 2 * kElements * sizeof(uint16_t);
BfPartShape ShapeOf(uint64_t size) {
  return {.sequences = static_cast<uint32_t>(size / kSequenceBytes),
          .rows = kTokens,
          .row_tile = 1,
          .planes = {{kElements, true}, {kElements, false}}};
}

// Turns parts of one memory into parts of another, both in turn.
class ConvertOp final : public BenchOp {
 public:
  ConvertOp(const BfPartShape& shape, StoredForm form, bool encode, std::byte* raw, std::byte* stored)
      : shape_(shape), form_(form), encode_(encode), raw_(raw), stored_(stored) {}
  BenchStep Step() override {
    const uint64_t raw_bytes = shape_.RawBytes(), stored_bytes = StoredBytes(shape_, form_);
    const auto raw = absl::MakeSpan(raw_ + at_ * raw_bytes, raw_bytes);
    const auto stored = absl::MakeSpan(stored_ + at_ * stored_bytes, stored_bytes);
    at_ = (at_ + 1) % parts();
    const absl::Status status =
        encode_ ? CompressPart(shape_, form_, raw, stored) : DecompressPart(shape_, form_, stored, raw);
    return {.ok = status.ok(), .bytes = raw_bytes, .items = 1};
  }
  // Encoding fills what decoding reads.
  uint64_t WarmSteps() const override { return parts(); }

 private:
  uint64_t parts() const { return kMemoryBytes / shape_.RawBytes(); }
  const BfPartShape shape_;
  const StoredForm form_;
  const bool encode_;
  std::byte* const raw_;
  std::byte* const stored_;
  uint64_t at_ = 0;
};

struct Memory {
  PrefaultedMemory in{kMemoryBytes}, stored{kMemoryBytes}, out{kMemoryBytes};
  bool ok() const { return in.data() != nullptr && stored.data() != nullptr && out.data() != nullptr; }
  void Fill() {
    Random random(kSeed);
    auto* values = reinterpret_cast<uint16_t*>(in.data());
    for (size_t i = 0; i < kMemoryBytes / sizeof(uint16_t); ++i)
      values[i] = FloatToBf16(static_cast<float>(random.Unit() * 8 - 4));
  }
};

Json FormJson(const CliOptions& options, StoredForm form, Memory& memory, Json& limit_json) {
  const BenchOptions& bench = options.bench;
  const BfPartShape shape = ShapeOf(bench.size_bytes);
  const BenchLimit limit = bench.limit ? MemcpyLimit({{memory.in.data(), kMemoryBytes}}, memory.out.data(),
                                                     kMemoryBytes, bench.size_bytes)
                                       : BenchLimit{};
  const auto measure = [&](bool encode, std::byte* raw) {
    ConvertOp op(shape, form, encode, raw, memory.stored.data());
    return RunSlices(op, limit, bench.seconds / (2 * kForms.size()), [] { return 0.0; });
  };
  const BenchFigures encode = measure(true, memory.in.data());
  const BenchFigures decode = measure(false, memory.out.data());
  const FormFigures figures = {.form = form,
                               .encode_gbps = encode.gbps,
                               .decode_gbps = decode.gbps,
                               .raw_bytes = shape.RawBytes(),
                               .stored_bytes = StoredBytes(shape, form)};
  const BreakEven even = BreakEvenOf(figures);
  Json out;
  out["form"] = StoredFormName(form);
  out["stored_bytes"] = figures.stored_bytes;
  out["encode_gbps"] = Rounded(encode.gbps);
  out["decode_gbps"] = Rounded(decode.gbps);
  if (bench.limit) {
    out["encode_ratio"] = encode.limit_gbps > 0 ? Rounded(encode.gbps / encode.limit_gbps) : 0.0;
    out["decode_ratio"] = decode.limit_gbps > 0 ? Rounded(decode.gbps / decode.limit_gbps) : 0.0;
    limit_json = Json{{"name", limit.name}, {"gbps", Rounded(decode.limit_gbps)}};
  }
  out["break_even"] = Json{{"store_gbps", Rounded(even.store_gbps)}, {"load_gbps", Rounded(even.load_gbps)}};
  return out;
}

std::string FormatsText(const Json& result) {
  const auto number = [](const Json& value) { return FormatNumber(value.get<double>()); };
  const bool limit = result.contains("limit");
  std::vector<std::vector<std::string>> rows = {
      {"form", "bytes", "encode GB/s", "decode GB/s", "stores pay below", "loads pay below"}};
  if (limit) rows[0].insert(rows[0].end(), {"encode of memcpy", "decode of memcpy"});
  for (const Json& form : result["forms"]) {
    rows.push_back({form["form"].get<std::string>(), form["stored_bytes"].dump(), number(form["encode_gbps"]),
                    number(form["decode_gbps"]), number(form["break_even"]["store_gbps"]),
                    number(form["break_even"]["load_gbps"])});
    if (limit)
      rows.back().insert(rows.back().end(), {number(form["encode_ratio"]), number(form["decode_ratio"])});
  }
  return FormatTable(rows);
}

}  // namespace

int BenchFormats(const CliOptions& options) {
  const uint64_t size = options.bench.size_bytes;
  if (size % kSequenceBytes != 0) {
    return Fail(options.json, "--size " + FormatSize(size) + " is no whole number of " +
                                  FormatSize(kSequenceBytes) + ", 32 tokens of one head; give 64K, 1M or 4M");
  }
  Memory memory;
  if (!memory.ok())
    return Fail(options.json,
                "this machine has no " + FormatSize(3 * kMemoryBytes) + " left; free as much memory");
  memory.Fill();
  Json out, limit;
  out["op"] = "formats";
  out["size"] = size;
  out["kernels"] = Kernels().name;
  out["forms"] = Json::array();
  for (const StoredForm form : kForms) out["forms"].push_back(FormJson(options, form, memory, limit));
  if (options.bench.limit) out["limit"] = limit;
  PrintResult(options.json, out, FormatsText(out));
  return kExitDone;
}

}  // namespace cistern
