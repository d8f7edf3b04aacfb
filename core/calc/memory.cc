#include "core/calc/memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/layout/geometry.h"
#include "core/status_macros.h"

namespace cistern::calc {
namespace {

using layout::Family;
using layout::Group;
using layout::Layout;
using layout::Segment;

absl::Status CheckRange(const char* field, uint64_t value, uint64_t max) {
  if (value >= 1 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", outside of 1 to ", max));
}

absl::Status CheckQuery(const MemoryQuery& query) {
  CISTERN_RETURN_IF_ERROR(CheckRange("context", query.tokens, kMemoryTokensMax));
  CISTERN_RETURN_IF_ERROR(CheckRange("batch", query.batch, kMemoryBatchMax));
  return CheckRange("tp", query.tp, kMemoryTpMax);
}

absl::Status TooMany(const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat("context x batch: the bytes of ", name, " are more than 64 bits count"));
}

// Heads of a segment that one of `tp` ranks holds.
absl::StatusOr<uint32_t> RankHeads(const Group& group, const Segment& segment, uint32_t tp) {
  const uint32_t heads = segment.planes[0].heads;
  if (segment.planes[0].shard == layout::Shard::kNone) return heads;
  if (heads % tp == 0) return heads / tp;
  if (tp % heads == 0) return 1;  // Ranks share a head.
  return absl::InvalidArgumentError(absl::StrCat(
      "tp is ", tp, ", which neither divides nor is divided by the ", heads, " heads of group ", group.name));
}

absl::StatusOr<GroupMemory> Count(const Group& group, const MemoryQuery& query) {
  GroupMemory memory{.name = group.name, .family = group.family};
  for (const Segment& segment : group.segments) {
    Group one = group;
    one.segments = {segment};
    const uint64_t bytes = layout::ResidentBytes(one, query.tokens);
    CISTERN_ASSIGN_OR_RETURN(const uint32_t rank_heads, RankHeads(group, segment, query.tp));
    memory.bytes += bytes;
    memory.rank_bytes += bytes / segment.planes[0].heads * rank_heads;
  }
  if (__builtin_mul_overflow(memory.bytes, query.batch, &memory.bytes) ||
      __builtin_mul_overflow(memory.rank_bytes, query.batch, &memory.rank_bytes)) {
    return TooMany(group.name);
  }
  return memory;
}

}  // namespace

absl::StatusOr<MemoryUse> ComputeMemory(const Layout& layout, const MemoryQuery& query) {
  CISTERN_RETURN_IF_ERROR(CheckQuery(query));
  MemoryUse use;
  for (const Group& group : layout.groups) {
    if (group.family == Family::kScratch) continue;
    CISTERN_ASSIGN_OR_RETURN(GroupMemory memory, Count(group, query));
    uint64_t& sum = group.working ? use.working_bytes : use.bytes;
    if (__builtin_add_overflow(sum, memory.bytes, &sum) ||
        __builtin_add_overflow(use.rank_bytes, memory.rank_bytes, &use.rank_bytes)) {
      return TooMany(group.name);
    }
    if (group.family == Family::kHistory) use.history_bytes += memory.bytes;
    (group.working ? use.working : use.groups).push_back(std::move(memory));
  }
  use.bytes_per_token = layout::BytesPerToken(layout);
  use.plain_gqa_bytes = layout::ModelLayers(layout) * kPlainGqaLayerBytes;
  if (__builtin_mul_overflow(use.plain_gqa_bytes, query.tokens, &use.plain_gqa_bytes) ||
      __builtin_mul_overflow(use.plain_gqa_bytes, query.batch, &use.plain_gqa_bytes)) {
    return TooMany("plain GQA");
  }
  return use;
}

absl::StatusOr<Fit> ComputeFit(const Layout& layout, const MemoryQuery& query, const FitQuery& fit) {
  CISTERN_RETURN_IF_ERROR(CheckQuery(query));
  Fit result;
  const auto sequence_bytes = [&](uint64_t tokens) -> absl::StatusOr<uint64_t> {
    CISTERN_ASSIGN_OR_RETURN(const MemoryUse use,
                             ComputeMemory(layout, {.tokens = tokens, .batch = 1, .tp = query.tp}));
    return use.rank_bytes;
  };
  CISTERN_ASSIGN_OR_RETURN(result.sequence_bytes, sequence_bytes(query.tokens));
  const uint64_t weights = fit.weights_bytes / query.tp + (fit.weights_bytes % query.tp != 0);
  result.weights_fit = weights <= fit.hbm_bytes && fit.reserve_bytes <= fit.hbm_bytes - weights;
  if (!result.weights_fit) return result;
  result.free_bytes = fit.hbm_bytes - weights - fit.reserve_bytes;
  result.sequences = result.sequence_bytes == 0 ? 0 : result.free_bytes / result.sequence_bytes;
  // The longest context that fits: bytes never fall as tokens grow.
  uint64_t fits = 0, too_long = kMemoryTokensMax + 1;
  while (too_long - fits > 1) {
    const uint64_t middle = fits + (too_long - fits) / 2;
    const absl::StatusOr<uint64_t> bytes = sequence_bytes(middle);
    (bytes.ok() && *bytes <= result.free_bytes ? fits : too_long) = middle;
  }
  result.longest_tokens = fits;
  return result;
}

}  // namespace cistern::calc
