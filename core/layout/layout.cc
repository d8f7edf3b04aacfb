#include "core/layout/layout.h"

#include <algorithm>
#include <array>

#include "core/layout/check.h"

namespace cistern::layout {
namespace {

struct Dtype {
  std::string_view name;
  uint32_t bits;
};
constexpr std::array<Dtype, 12> kDtypes = {{{"fp32", 32},
                                            {"bf16", 16},
                                            {"fp16", 16},
                                            {"e4m3", 8},
                                            {"e5m2", 8},
                                            {"int8", 8},
                                            {"uint8", 8},
                                            {"ue8m0", 8},
                                            {"opaque", 8},
                                            {"e2m1", 4},
                                            {"int4", 4},
                                            {"uint4", 4}}};

}  // namespace

std::string_view FamilyName(Family family) {
  switch (family) {
    case Family::kHistory:
      return "history";
    case Family::kTailWindow:
      return "window";
    case Family::kTailState:
      return "state";
    case Family::kScratch:
      return "scratch";
  }
  return "unknown";
}

std::optional<uint32_t> DtypeBits(std::string_view dtype) {
  const auto* known =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& one) { return one.name == dtype; });
  if (known == kDtypes.end()) return std::nullopt;
  return known->bits;
}

absl::Status Validate(const Layout& layout) { return LayoutCheck(layout).Run(); }

}  // namespace cistern::layout
