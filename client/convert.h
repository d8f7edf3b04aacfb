#pragma once

#include <string>

#include "absl/status/status.h"
#include "cistern/client.h"
#include "cistern/status.h"
#include "core/part.h"

// Between the house's types and those of the installed headers.
namespace cistern {

inline Status ToPublic(const absl::Status& status) {
  if (status.ok()) return {};
  return {static_cast<Code>(static_cast<int>(status.code())), std::string(status.message())};
}

static_assert(static_cast<int>(PageResult::kBreakerOpen) == static_cast<int>(PartResult::kBreakerOpen));
static_assert(static_cast<int>(PageResult::kBreakerOpen) == kPartResultMax,
              "a new PartResult needs its PageResult");
inline PageResult ToPublic(PartResult result) { return static_cast<PageResult>(result); }

}  // namespace cistern
