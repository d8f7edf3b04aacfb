#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cistern {

inline constexpr uint32_t kModelLayersMax = 4096;
inline constexpr uint32_t kAttentionTermsMax = 16;

// How the layers of one kind attend. A query at position t (from 0) reads min(floor((t + 1) / stride), cap)
// keys, each worth qk_dim multiplications for the score and v_dim for the sum, in every head.
struct AttentionTerm {
  // "full"; "window" (cap = the window); "topk" (cap = k); "compressed" (one row per `stride` tokens, all or
  // the best `cap`); "indexer" (scores alone: v_dim 0); "state" (a matrix of qk_dim x v_dim a head, the same
  // work for every token).
  std::string family{};
  uint32_t layers = 0;
  uint32_t heads = 0;
  uint32_t qk_dim = 0;
  uint32_t v_dim = 0;
  uint32_t stride = 1;
  uint64_t cap = 0;  // 0: none.
};

// What FLOPs and bytes of a prompt are counted from; layouts do not carry it.
struct ModelFacts {
  std::string name{};
  std::vector<std::string> aliases{};
  double linear_params = 0;       // Weights that each prompt token is multiplied with.
  double kv_bytes_per_token = 0;  // History, all layers, in `row_format`.
  uint64_t tail_bytes = 0;        // Windows and states of one boundary.
  std::string row_format{};
  std::vector<AttentionTerm> attention{};
  std::string source{};
  std::string note{};
};

// The models of one data file; `where` names it in messages. InvalidArgument naming entry and field.
absl::StatusOr<std::vector<ModelFacts>> ParseModels(std::string_view text, const std::string& where);
// The embedded models; those of the file at `path`, if it is not empty, take the place of their namesakes.
absl::StatusOr<std::vector<ModelFacts>> LoadModels(const std::string& path);
// NotFound listing the known names.
absl::StatusOr<ModelFacts> FindModel(const std::vector<ModelFacts>& models, std::string_view name);

}  // namespace cistern
