#include <algorithm>
#include <array>

#include "tests/sim/sim_faults.h"

namespace cistern {
namespace {

constexpr std::array<std::string_view, kFaultKinds> kNames = {
    "link", "cut", "node", "router", "client", "flip", "drop", "reset", "rpc", "twice", "disk", "clock"};

}  // namespace

std::string FaultNames(uint32_t faults) {
  if (faults == kAllFaults) return "all";
  std::string names;
  for (uint32_t i = 0; i < kFaultKinds; ++i) {
    if ((faults >> i & 1) == 0) continue;
    if (!names.empty()) names += ',';
    names += kNames[i];
  }
  return names.empty() ? "none" : names;
}

std::optional<uint32_t> ParseFaults(std::string_view names) {
  if (names == "all") return kAllFaults;
  uint32_t faults = 0;
  if (names == "none") return faults;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    bool known = false;
    for (uint32_t i = 0; i < kFaultKinds; ++i) {
      if (names.substr(begin, end - begin) != kNames[i]) continue;
      faults |= 1u << i;
      known = true;
    }
    if (!known) return std::nullopt;
    begin = end + 1;
  }
  return faults;
}

}  // namespace cistern
