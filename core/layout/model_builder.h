#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/layout/config_reader.h"
#include "core/layout/layout.h"
#include "core/layout/model_config.h"

// Pieces that model_config.cc puts together: rows of planes as engines store them.
namespace cistern::layout {

// "ROWS/INDEX" of a query, taken apart.
struct RowFormat {
  std::string rows{};   // "bf16", "fp16" or "fp8".
  std::string index{};  // "bf16", "fp16", "fp8" or "fp4".
};

std::vector<uint32_t> LayerRun(uint32_t first, uint32_t end);

// K and V of `heads` heads, side by side in a row.
std::vector<Plane> HeadRow(const std::string& rows, uint32_t heads, uint32_t elements);
// One latent row for all heads: 656 bytes in fp8 with 512 + 64.
std::vector<Plane> LatentRow(const std::string& rows, uint32_t latent, uint32_t rope);
// One index key for all heads, with its scale: 132 bytes in fp8, 68 in fp4 with 128. pow2: fp8 scales are
// powers of two.
std::vector<Plane> IndexRow(const std::string& rows, uint32_t elements, bool pow2);
// DeepSeek V4's row: 584 bytes in fp8 with 448 + 64.
std::vector<Plane> CompressedRow(const std::string& rows, uint32_t nope, uint32_t rope);
Plane StatePlane(const std::string& name, const std::string& dtype, uint32_t heads, uint32_t elements);

Group HistoryGroup(const std::string& name, uint16_t slices);
Group WindowGroup(const std::string& name, uint32_t window_tokens, uint16_t slices);

// Builds the groups of one model type. `layout` has block_tokens for the time being.
using GroupBuilder = void (*)(ConfigReader& config, const RowFormat& format, const ConfigQuery& query,
                              Layout& layout);
struct ModelType {
  const char* name;
  GroupBuilder build;
  uint32_t block_step = 16;        // Smallest block whose size nobody gave.
  uint32_t block_tokens_max = 64;  // Of a block whose size nobody gave.
  bool has_index = false;          // "/INDEX" means something.
  uint32_t row_tokens_max = 1;     // Of any row: blocks are multiples of it.
};
const std::vector<ModelType>& ModelTypes();

}  // namespace cistern::layout
