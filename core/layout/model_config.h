#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/layout/layout.h"

namespace cistern::layout {

inline constexpr size_t kConfigBytesMax = 4u << 20;

struct ConfigQuery {
  std::string model{};        // Name to write; empty: the model type.
  std::string rows{};         // "bf16", "fp16", "fp8", and "/bf16", "/fp8", "/fp4" for index keys; empty: the
                              // config's dtype.
  std::string state_dtype{};  // Of recurrent states: "fp32" (empty), "bf16", "fp16".
  uint32_t block_tokens = 0;  // 0: so that parts are at most 4 MiB.
};

// The layout of a model from its Hugging Face config.json. Knows the model types that KnownModelTypes lists,
// and of them only what is told by fields it reads: InvalidArgument names a model type, a field or a value it
// does not know.
absl::StatusOr<Layout> FromModelConfig(std::string_view json, const ConfigQuery& query);
std::vector<std::string> KnownModelTypes();

}  // namespace cistern::layout
