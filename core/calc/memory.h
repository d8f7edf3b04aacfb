#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/layout/layout.h"

// How much KV a sequence keeps in an engine, from its model's layout alone.
namespace cistern::calc {

inline constexpr uint64_t kMemoryTokensMax = uint64_t{1} << 28;
inline constexpr uint64_t kMemoryBatchMax = uint64_t{1} << 20;
inline constexpr uint32_t kMemoryTpMax = 4096;
// What published ratios call plain GQA: 8 KV heads x 128 in bf16, K and V, in every layer.
inline constexpr uint64_t kPlainGqaLayerBytes = uint64_t{2} * 8 * 128 * 2;

struct MemoryQuery {
  uint64_t tokens = 0;  // Of one sequence.
  uint64_t batch = 1;   // Sequences.
  uint32_t tp = 1;      // Tensor-parallel ranks.
};

struct GroupMemory {
  std::string name{};
  layout::Family family = layout::Family::kHistory;
  uint64_t bytes = 0;       // Of the batch, every byte counted once.
  uint64_t rank_bytes = 0;  // Of the batch on one rank, which may hold what others hold too.
  friend bool operator==(const GroupMemory&, const GroupMemory&) = default;
};

struct MemoryUse {
  std::vector<GroupMemory> groups{};  // History, windows and states; their bytes add up to `bytes`.
  std::vector<GroupMemory>
      working{};  // Half-made rows: kept by engines, counted by no paper, not in `bytes`.
  uint64_t bytes = 0;
  uint64_t history_bytes = 0;  // Of `bytes`, what grows with every token: the figure that papers give.
  uint64_t working_bytes = 0;
  uint64_t rank_bytes = 0;     // On one rank, working rows included.
  double bytes_per_token = 0;  // Of history, one sequence.
  uint64_t plain_gqa_bytes = 0;
};

// InvalidArgument naming the field: 0 or too many tokens, sequences or ranks; heads that the ranks neither
// divide nor are divided by (more ranks than heads share heads); more bytes than 64 bits count.
absl::StatusOr<MemoryUse> ComputeMemory(const layout::Layout& layout, const MemoryQuery& query);

struct FitQuery {
  uint64_t hbm_bytes = 0;      // Of one device.
  uint64_t weights_bytes = 0;  // Of the whole model; each rank holds its share, rounded up.
  uint64_t reserve_bytes = 0;  // Of one device, for activations and the rest.
};
struct Fit {
  bool weights_fit = false;
  uint64_t free_bytes = 0;      // Of one device, beside weights and reserve.
  uint64_t sequence_bytes = 0;  // Of one sequence on one device.
  uint64_t sequences = 0;       // 0 when the weights do not fit.
  uint64_t longest_tokens = 0;  // Of a single sequence alone on the device; at most kMemoryTokensMax.
};
absl::StatusOr<Fit> ComputeFit(const layout::Layout& layout, const MemoryQuery& query, const FitQuery& fit);

}  // namespace cistern::calc
