#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace cistern {

inline constexpr size_t kBreakpointsMax = 4;        // New commit marks of one request.
inline constexpr uint32_t kLookBackBlocksMax = 20;  // Blocks that a look-up walks back from each of them.

// Explicit caching: a prompt names the token counts at which what precedes is worth keeping (the ends of
// tools, system prompt, documents, turns). Each becomes a commit mark: the last whole block before it. With
// none named the newest end is marked.
//
// InvalidArgument names the entry: more than kBreakpointsMax, not ascending, 0 or behind the prompt.
absl::Status CheckBreakpoints(absl::Span<const uint64_t> breakpoints, uint64_t prompt_tokens);

// The marks of a prompt, in tokens: multiples of `align_tokens`, ascending, each once, none of 0.
std::vector<uint64_t> CommitMarks(absl::Span<const uint64_t> breakpoints, uint64_t prompt_tokens,
                                  uint32_t align_tokens);

// The boundaries that the marks lead to, as a bitmap over a chain's blocks (bit i: the end of block i): each
// mark, and kLookBackBlocksMax blocks back from it. A hit ends at the deepest of them that is committed.
std::vector<uint64_t> LookBack(absl::Span<const uint64_t> marks, uint32_t block_tokens, uint64_t blocks);

}  // namespace cistern
