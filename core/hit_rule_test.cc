#include "core/hit_rule.h"

#include <algorithm>
#include <vector>

#include "core/random.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using Bits = std::vector<uint64_t>;

void Set(Bits& bits, uint64_t i) {
  if (bits.size() <= i / 64) bits.resize(i / 64 + 1);
  bits[i / 64] |= uint64_t{1} << (i % 64);
}
bool Has(absl::Span<const uint64_t> bits, uint64_t i) {
  return i / 64 < bits.size() && (bits[i / 64] >> (i % 64) & 1) != 0;
}
bool HasBlock(const GroupPresence& group, uint64_t block) {
  return group.blocks.empty() ? block < group.leading_blocks : Has(group.blocks, block);
}

// The rule as the design words it, token by token.
bool Accepts(const HitRule& rule, absl::Span<const GroupPresence> groups, uint64_t tokens) {
  if (tokens == 0) return true;
  for (const uint64_t align : {rule.block_tokens, rule.align_tokens, rule.caller_align_tokens}) {
    if (align != 0 && tokens % align != 0) return false;
  }
  if (tokens > rule.max_tokens || tokens <= rule.replay_tokens) return false;
  return std::all_of(groups.begin(), groups.end(), [&](const GroupPresence& group) {
    if (!group.required) return true;
    if (group.tail) return Has(group.tails, tokens / rule.block_tokens - 1);
    for (uint64_t token = 0; token < tokens + group.lookahead_tokens; ++token) {
      if (!HasBlock(group, token / rule.block_tokens)) return false;
    }
    return true;
  });
}

struct Case {
  HitRule rule;
  std::vector<Bits> bits;
  std::vector<GroupPresence> groups;
};

void Draw(Random& random, Case& c) {
  c.rule = {.block_tokens = static_cast<uint32_t>(1 + random.Below(8))};
  if (random.Chance(0.5)) c.rule.align_tokens = static_cast<uint32_t>(1 + random.Below(24));
  if (random.Chance(0.4)) c.rule.caller_align_tokens = static_cast<uint32_t>(1 + random.Below(24));
  if (random.Chance(0.3)) c.rule.replay_tokens = static_cast<uint32_t>(random.Below(40));
  const uint64_t blocks = random.Below(200);
  c.rule.max_tokens = random.Below(blocks * c.rule.block_tokens + 20);
  const size_t count = random.Below(7);
  c.bits.assign(count, {});
  c.groups.assign(count, {});
  for (size_t i = 0; i < count; ++i) {
    GroupPresence& group = c.groups[i];
    group.tail = random.Chance(0.5);
    group.required = random.Chance(0.8);
    const double density = random.Chance(0.5) ? 0.95 : random.Chance(0.5) ? 0.5 : 0.02;
    for (uint64_t b = 0; b < blocks; ++b) {
      if (random.Chance(density)) Set(c.bits[i], b);
    }
    if (group.tail) {
      group.tails = c.bits[i];
      continue;
    }
    if (random.Chance(0.3)) group.lookahead_tokens = static_cast<uint32_t>(random.Below(20));
    if (random.Chance(0.5)) {
      group.leading_blocks = random.Below(blocks + 1);
    } else {
      if (random.Chance(0.7)) {  // Long fronts, or hits would be rare.
        c.bits[i].assign(blocks / 64 + 1, UINT64_MAX);
        if (random.Chance(0.5))
          c.bits[i][random.Below(c.bits[i].size())] &= ~(uint64_t{1} << random.Below(64));
      }
      group.blocks = c.bits[i];
    }
  }
}

TEST(HitRule, AgreesWithTheRuleTokenByToken) {
  const uint64_t seed = 5;
  RecordProperty("seed", static_cast<int>(seed));
  Random random(seed);
  Case c;
  std::vector<GroupLoad> loads;
  int hits = 0, by_tail = 0;
  for (int round = 0; round < 20'000; ++round) {
    Draw(random, c);
    const HitDecision got = DecideHit(c.rule, c.groups, loads);
    uint64_t want = c.rule.max_tokens;
    while (!Accepts(c.rule, c.groups, want)) --want;
    ASSERT_EQ(got.tokens, want) << "round " << round << " seed " << seed;
    hits += want != 0;
    by_tail += want != 0 && got.limit == HitLimit::kTail;
    ASSERT_EQ(loads.size(), c.groups.size());
    const uint64_t blocks = want / c.rule.block_tokens;
    for (size_t i = 0; i < loads.size(); ++i) {
      const GroupPresence& group = c.groups[i];
      ASSERT_EQ(loads[i].tail, want != 0 && group.tail && Has(group.tails, blocks - 1));
      if (group.tail) continue;
      uint32_t leading = 0;
      while (leading < blocks && HasBlock(group, leading)) ++leading;
      ASSERT_EQ(loads[i].blocks, leading);
      if (group.required) {
        ASSERT_EQ(loads[i].blocks, blocks);
      }
    }
    ASSERT_EQ(got.resume_tokens, want == 0 ? 0 : want - c.rule.replay_tokens);
    // What the history alone would allow.
    for (GroupPresence& group : c.groups) group.required = group.required && !group.tail;
    c.rule.replay_tokens = 0;
    want = c.rule.max_tokens;
    while (!Accepts(c.rule, c.groups, want)) --want;
    ASSERT_EQ(got.history_tokens, want);
  }
  EXPECT_GT(hits, 2000);
  EXPECT_GT(by_tail, 300);
}

TEST(HitRule, NeverCoversTheLastTokenOfThePrompt) {
  std::vector<GroupLoad> loads;
  const GroupPresence full{.leading_blocks = 4, .blocks = {}, .tails = {}};
  const HitRule rule{.block_tokens = 16, .max_tokens = 63};
  EXPECT_EQ(DecideHit(rule, {&full, 1}, loads).tokens, 48);
}

TEST(HitRule, SaysWhatForbidsMore) {
  std::vector<GroupLoad> loads;
  Bits bits;
  Set(bits, 1);
  std::vector<GroupPresence> groups(2);
  groups[0].leading_blocks = 4;
  groups[1].tail = true;
  groups[1].tails = bits;
  HitRule rule{.block_tokens = 16, .max_tokens = 1000};
  HitDecision hit = DecideHit(rule, groups, loads);
  EXPECT_EQ(hit.tokens, 32);
  EXPECT_EQ(hit.history_tokens, 64);
  EXPECT_EQ(hit.limit, HitLimit::kTail);
  EXPECT_EQ(hit.group, 1);
  groups[0].leading_blocks = 2;
  hit = DecideHit(rule, groups, loads);
  EXPECT_EQ(hit.limit, HitLimit::kHistory);
  EXPECT_EQ(hit.group, 0);
  rule.max_tokens = 32;
  EXPECT_EQ(DecideHit(rule, groups, loads).limit, HitLimit::kCaller);
  rule.replay_tokens = 32;
  EXPECT_EQ(DecideHit(rule, groups, loads).tokens, 0);
  EXPECT_EQ(DecideHit(rule, groups, loads).limit, HitLimit::kReplay);
}

TEST(HitRule, AlignmentsThatNoPromptReachesAreAMiss) {
  std::vector<GroupLoad> loads;
  const GroupPresence full{.leading_blocks = 1u << 16, .blocks = {}, .tails = {}};
  const HitRule rule{.block_tokens = 4'294'967'291,
                     .align_tokens = 4'294'967'279,
                     .caller_align_tokens = 4'294'967'231,
                     .max_tokens = UINT64_MAX};
  EXPECT_EQ(DecideHit(rule, {&full, 1}, loads).tokens, 0);
  EXPECT_EQ(DecideHit({}, {&full, 1}, loads).tokens, 0);
}

}  // namespace
}  // namespace cistern
