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

std::vector<uint64_t> LookBack(absl::Span<const uint64_t> marks, uint32_t block_tokens, uint64_t blocks) {
  CISTERN_CHECK(block_tokens != 0);
  std::vector<uint64_t> bits((blocks + 63) / 64);
  for (const uint64_t tokens : marks) {
    const uint64_t mark = std::min(tokens / block_tokens, blocks);
    for (uint64_t step = 0; step <= kLookBackBlocksMax && step < mark; ++step) {
      const uint64_t block = mark - step - 1;
      bits[block / 64] |= uint64_t{1} << (block % 64);
    }
  }
  return bits;
}

}  // namespace cistern
