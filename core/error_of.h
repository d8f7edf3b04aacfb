#pragma once

#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cistern {

// An error for whom it has to reach: without memory for its words it comes without them.
template <typename... Parts>
absl::Status ErrorOf(absl::StatusCode code, const Parts&... parts) noexcept {
  try {
    return absl::Status(code, absl::StrCat(parts...));
  } catch (const std::bad_alloc&) {
    return absl::Status(code, "");
  }
}

}  // namespace cistern
