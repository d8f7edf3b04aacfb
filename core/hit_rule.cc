#include "core/hit_rule.h"

#include <algorithm>
#include <numeric>

namespace cistern {
namespace {

bool Bit(absl::Span<const uint64_t> bits, uint64_t i) {
  return i / 64 < bits.size() && (bits[i / 64] >> (i % 64) & 1) != 0;
}

uint64_t LeadingOnes(absl::Span<const uint64_t> bits) {
  uint64_t count = 0;
  for (const uint64_t word : bits) {
    if (word != UINT64_MAX) return count + static_cast<uint64_t>(__builtin_ctzll(~word));
    count += 64;
  }
  return count;
}

uint64_t Leading(const GroupPresence& group) {
  return group.blocks.empty() ? group.leading_blocks : LeadingOnes(group.blocks);
}

// The step between lengths that a hit may have; 0 when it is beyond any prompt.
uint64_t Step(const HitRule& rule) {
  uint64_t step = rule.block_tokens;
  for (const uint64_t align : {rule.align_tokens, rule.caller_align_tokens}) {
    if (align == 0 || step == 0) continue;
    const uint64_t factor = align / std::gcd(step, align);
    if (factor > UINT64_MAX / step) return 0;
    step *= factor;
  }
  return step;
}

// Word `at` of the boundaries at which every required tail is complete.
uint64_t CommonWord(absl::Span<const GroupPresence> groups, size_t at) {
  uint64_t common = UINT64_MAX;
  for (const GroupPresence& group : groups) {
    if (group.tail && group.required) common &= at < group.tails.size() ? group.tails[at] : 0;
  }
  return common;
}

// The greatest multiple of `step` blocks in [1, blocks] whose boundary has all required tails; 0 if none has.
// Looks at each word of the bitmaps once, from the end.
uint64_t LastCommonBoundary(absl::Span<const GroupPresence> groups, uint64_t blocks, uint64_t step) {
  size_t word_at = SIZE_MAX;
  uint64_t word = 0;
  for (uint64_t n = blocks / step * step; n > 0;) {
    const uint64_t bit = n - 1;
    if (bit / 64 != word_at) {
      word_at = bit / 64;
      word = CommonWord(groups, word_at);
    }
    const uint64_t below = word & (UINT64_MAX >> (63 - bit % 64));
    if (below >> (bit % 64) & 1) return n;
    // To the next boundary with tails in this word, or to the end of the word before; then to the step.
    const uint64_t next =
        below == 0 ? word_at * 64 : word_at * 64 + 64 - static_cast<uint64_t>(__builtin_clzll(below));
    n = next / step * step;
  }
  return 0;
}

}  // namespace

HitDecision DecideHit(const HitRule& rule, absl::Span<const GroupPresence> groups,
                      std::vector<GroupLoad>& loads) {
  HitDecision out;
  loads.assign(groups.size(), GroupLoad{});
  const uint64_t step = Step(rule);
  if (step == 0) return out;
  uint64_t reach = rule.max_tokens;
  bool tails = false;
  for (uint32_t i = 0; i < groups.size(); ++i) {
    const GroupPresence& group = groups[i];
    if (!group.required) continue;
    if (group.tail) {
      tails = true;
      continue;
    }
    const uint64_t have = Leading(group) * rule.block_tokens;
    const uint64_t ends = have - std::min<uint64_t>(have, group.lookahead_tokens);
    if (ends >= reach) continue;
    reach = ends;
    out.limit = HitLimit::kHistory;
    out.group = i;
  }
  out.history_tokens = out.tokens = reach / step * step;
  if (tails) {
    const uint64_t per_block = rule.block_tokens;
    out.tokens = LastCommonBoundary(groups, out.history_tokens / per_block, step / per_block) * per_block;
  }
  if (out.tokens < out.history_tokens) {
    out.limit = HitLimit::kTail;
    for (out.group = 0; out.group < groups.size(); ++out.group) {
      const GroupPresence& group = groups[out.group];
      if (group.tail && group.required && !Bit(group.tails, out.history_tokens / rule.block_tokens - 1))
        break;
    }
  }
  if (out.tokens <= rule.replay_tokens) {  // All of it would be computed again.
    if (out.tokens != 0) out.limit = HitLimit::kReplay;
    out.tokens = 0;
    return out;
  }
  out.resume_tokens = out.tokens - rule.replay_tokens;
  const auto blocks = static_cast<uint32_t>(out.tokens / rule.block_tokens);
  for (uint32_t i = 0; i < groups.size(); ++i) {
    if (groups[i].tail) {
      loads[i].tail = Bit(groups[i].tails, blocks - 1);
    } else {
      loads[i].blocks = static_cast<uint32_t>(std::min<uint64_t>(Leading(groups[i]), blocks));
    }
  }
  return out;
}

}  // namespace cistern
