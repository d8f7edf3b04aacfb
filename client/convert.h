#pragma once

#include <string>

#include "absl/status/status.h"
#include "cistern/client.h"
#include "cistern/status.h"
#include "core/part.h"
#include "core/retention.h"

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

static_assert(static_cast<uint8_t>(Pin::kHard) == kPinKindMax);
inline Status RetentionOf(const CallOptions& options, Retention& out) {
  const int64_t seconds = options.ttl.count();
  if (seconds < 0 || seconds > int64_t{kTtlSecondsMax})
    return {Code::kInvalidArgument, "ttl: below 0, or above 180 days"};
  out = {.ttl_s = static_cast<uint32_t>(seconds),
         .sliding = options.ttl_slides,
         .pin = static_cast<PinKind>(options.pin)};
  if (!IsLegal(out)) return {Code::kInvalidArgument, "ttl_slides: without a ttl"};
  return {};
}

}  // namespace cistern
