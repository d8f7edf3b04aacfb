#include "cache_node/decision_table.h"

#include "gtest/gtest.h"

namespace cistern {
namespace {

BlockHash Request(uint32_t name) {
  BlockHash hash;
  hash.bytes.fill(static_cast<uint8_t>(name));
  hash.bytes[1] = static_cast<uint8_t>(name >> 8);
  return hash;
}

TEST(DecisionTable, F50_TheFirstProposalIsEveryRanksAnswer) {
  DecisionTable table;
  EXPECT_EQ(table.Propose(Request(1), 512, 0).tokens, 512u);
  for (const uint64_t other : {0u, 256u, 1024u}) EXPECT_EQ(table.Propose(Request(1), other, 1).tokens, 512u);
  EXPECT_EQ(table.Peek(Request(1), 1).asked, 4u);
  EXPECT_EQ(table.Propose(Request(2), 0, 1).tokens, 0u) << "a miss is a decision too";
  EXPECT_EQ(table.Propose(Request(2), 512, 1).tokens, 0u);
}

TEST(DecisionTable, ForgetsADecisionAfterItsLife) {
  DecisionTable table;
  table.Propose(Request(1), 512, 0);
  EXPECT_EQ(table.Propose(Request(1), 256, kDecisionLife - 1).tokens, 512u);
  EXPECT_EQ(table.Peek(Request(1), kDecisionLife).asked, 0u);
  EXPECT_EQ(table.Propose(Request(1), 256, kDecisionLife).tokens, 256u);
}

TEST(DecisionTable, ForgetsTheOldestWhenFull) {
  DecisionTable table;
  for (uint32_t i = 0; i <= kDecisionsMax; ++i) table.Propose(Request(i), i + 1, i);
  EXPECT_EQ(table.size(), kDecisionsMax);
  EXPECT_EQ(table.Peek(Request(0), kDecisionsMax).asked, 0u);
  EXPECT_EQ(table.Peek(Request(1), kDecisionsMax).tokens, 2u);
  EXPECT_EQ(table.Peek(Request(kDecisionsMax), kDecisionsMax).tokens, kDecisionsMax + 1);
}

}  // namespace
}  // namespace cistern
