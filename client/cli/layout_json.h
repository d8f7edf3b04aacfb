#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "client/cli/output.h"
#include "proto/layout_catalog.h"

namespace cistern {

// A boundary deep enough that every window is full.
inline constexpr uint64_t kWholeTail = uint64_t{1} << 40;

inline std::string ErrorText(const absl::Status& status) { return std::string(status.message()); }

// What `cistern layout list|show` print of one layout: names, id, sizes, groups with their parts.
Json LayoutJson(const ShippedLayout& shipped);

}  // namespace cistern
