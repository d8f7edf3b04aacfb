#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cistern {

struct LayoutOptions {
  std::string name;                // show: name or file.
  bool text = false;               // show: the text form alone.
  std::vector<std::string> files;  // check.
  std::string before, after;       // diff.
  std::string config;              // from-config: a model's config.json.
  std::string rows;                // from-config: row format; empty: bf16.
  std::string model;               // from-config: name to write; empty: the config's.
  std::string state_dtype;         // from-config: of recurrent states; empty: fp32.
  uint32_t block_tokens = 0;       // from-config: 0: so that parts are at most 4 MiB.
};

struct CalcMemoryOptions {
  std::string model;
  std::string rows;  // --dtype; empty: what engines serve.
  uint64_t context = 0;
  uint64_t batch = 1;
  uint32_t tp = 1;
  uint64_t hbm_bytes = 0;  // 0: do not ask how many sequences fit.
  uint64_t weights_bytes = 0;
  uint64_t reserve_bytes = 0;
  std::vector<std::string> compare;  // Other models or layouts, as in --layout.
  std::string svg;                   // File for the chart.
};

}  // namespace cistern
