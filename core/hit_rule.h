#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace cistern {

// What is present of one group of a layout, along one chain. Bit i of a bitmap stands in word i / 64.
struct GroupPresence {
  bool tail = false;              // A window or a state; else history.
  bool required = true;           // False: loaded where it is there, never a reason for a shorter hit.
  uint32_t lookahead_tokens = 0;  // History alone: must reach so far behind the hit's end (draft layers).
  uint64_t leading_blocks = 0;    // History: blocks [0, n) have every part, unless `blocks` says more.
  absl::Span<const uint64_t> blocks{};  // History: one bit a block; its leading ones count.
  absl::Span<const uint64_t> tails{};   // Tail: bit i: the tail at (i + 1) * block_tokens is complete.
};

// What decides besides presence.
struct HitRule {
  uint32_t block_tokens = 0;
  uint32_t align_tokens = 0;         // The layout's; 0: none beyond whole blocks.
  uint32_t caller_align_tokens = 0;  // The engine's hit unit; 0: none.
  uint32_t replay_tokens =
      0;                    // Tokens before the hit's end that the engine computes again (unstored windows).
  uint64_t max_tokens = 0;  // The caller's: prompt - 1, since the last token's logits have to be computed.
};

enum class HitLimit : uint8_t { kCaller, kHistory, kTail, kReplay };

// What to load of one group: blocks [0, blocks) of a history, the tail at the hit's end.
struct GroupLoad {
  uint32_t blocks = 0;
  bool tail = false;
};

struct HitDecision {
  uint64_t tokens = 0;                 // Length of the hit; 0 is a miss.
  uint64_t resume_tokens = 0;          // Where the engine goes on: tokens, less what it replays.
  uint64_t history_tokens = 0;         // The hit there would be if every tail were there.
  HitLimit limit = HitLimit::kCaller;  // What forbids a longer hit.
  uint32_t group = 0;                  // The group that does (kHistory, kTail).
};

// The hit rule (DESIGN §4): the greatest length that is a multiple of the alignments (least common multiple
// of the block, the layout's and the caller's), at most max_tokens, whose history every required group has
// (plus its lookahead) and at which every required tail is complete. Length 0 needs nothing. `loads` gets one
// entry a group. Pure; allocates only to grow `loads`. Thread: any.
HitDecision DecideHit(const HitRule& rule, absl::Span<const GroupPresence> groups,
                      std::vector<GroupLoad>& loads);

}  // namespace cistern
