#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cistern/client.h"
#include "cistern/status.h"
#include "client/core/client_types.h"
#include "core/clock.h"
#include "core/part.h"
#include "core/retention.h"

// Between the house's types and those of the installed headers.
namespace cistern {

inline Status ToPublic(const absl::Status& status) {
  if (status.ok()) return {};
  return {static_cast<Code>(static_cast<int>(status.code())), std::string(status.message())};
}

inline absl::Status ToAbsl(const Status& status) {
  return {static_cast<absl::StatusCode>(status.code()), status.message()};
}

static_assert(static_cast<int>(PageResult::kBreakerOpen) == static_cast<int>(PartResult::kBreakerOpen));
static_assert(static_cast<int>(PageResult::kBreakerOpen) == kPartResultMax,
              "a new PartResult needs its PageResult");
inline PageResult ToPublic(PartResult result) { return static_cast<PageResult>(result); }

inline std::vector<PageResult> ToPublic(absl::Span<const PartResult> pages) {
  std::vector<PageResult> out;
  out.reserve(pages.size());
  for (const PartResult result : pages) out.push_back(ToPublic(result));
  return out;
}
inline LoadReport ToReport(const LoadOutcome& outcome) {
  return {ToPublic(outcome.status), outcome.hit_blocks, ToPublic(outcome.pages), outcome.bytes};
}
inline StoreReport ToReport(const StoreOutcome& outcome) {
  return {ToPublic(outcome.status), ToPublic(outcome.pages), outcome.bytes};
}

// The core's times, far from what a clock's sum overflows at.
inline constexpr std::chrono::milliseconds kDurationMax = std::chrono::hours(24);
inline Nanos ToNanos(std::chrono::milliseconds duration) {
  return Nanos{std::clamp(duration, -kDurationMax, kDurationMax).count()} * kMillisecond;
}
// A call's deadline, from now; 0: the client's default. A caller's time may be over when it asks: then the
// call ends at once, and does not get the default.
inline Nanos DeadlineOf(const CallOptions& options) {
  return options.deadline.count() < 0 ? Nanos{1} : ToNanos(options.deadline);
}

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
