#include "core/breakpoints.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/check.h"

namespace cistern {

absl::Status CheckBreakpoints(absl::Span<const uint64_t> breakpoints, uint64_t prompt_tokens) {
  if (breakpoints.size() > kBreakpointsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("breakpoints: ", breakpoints.size(), " in one request, at most ", kBreakpointsMax));
  }
  uint64_t before = 0;
  for (size_t i = 0; i < breakpoints.size(); ++i) {
    if (breakpoints[i] <= before || breakpoints[i] > prompt_tokens) {
      return absl::InvalidArgumentError(absl::StrCat("breakpoints[", i, "]: ", breakpoints[i], " is not in (",
                                                     before, ", ", prompt_tokens, "]"));
    }
    before = breakpoints[i];
  }
  return absl::OkStatus();
}

std::vector<uint64_t> CommitMarks(absl::Span<const uint64_t> breakpoints, uint64_t prompt_tokens,
                                  uint32_t align_tokens) {
  CISTERN_CHECK(align_tokens != 0);
  std::vector<uint64_t> marks;
  const auto add = [&](uint64_t tokens) {
    tokens = tokens / align_tokens * align_tokens;
    if (tokens != 0 && (marks.empty() || marks.back() != tokens)) marks.push_back(tokens);
  };
  for (const uint64_t tokens : breakpoints) add(tokens);
  if (breakpoints.empty()) add(prompt_tokens);
  return marks;
}

uint64_t LookBack(absl::Span<const uint64_t> marks, uint32_t block_tokens,
                  absl::FunctionRef<bool(uint64_t)> is_committed) {
  CISTERN_CHECK(block_tokens != 0);
  uint64_t best = 0;
  for (size_t i = marks.size(); i-- > 0;) {
    if (marks[i] <= best) break;
    uint64_t at = marks[i] / block_tokens * block_tokens;
    for (uint32_t step = 0; step <= kLookBackBlocksMax && at > best; ++step, at -= block_tokens) {
      if (!is_committed(at)) continue;
      best = at;
      break;
    }
  }
  return best;
}

}  // namespace cistern
