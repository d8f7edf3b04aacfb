#include "cache_node/block_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

namespace cistern {
namespace {

BlockHash Hash(uint64_t number) {
  Random random(number);
  BlockHash hash;
  for (size_t i = 0; i < 32; i += 8) StoreLe<uint64_t>(hash.bytes.data() + i, random.Next());
  return hash;
}

// Values that can be moved alone, and own memory: none is lost or kept twice where cells move.
TEST(BlockTable, AgreesWithAMapWhileItsSizeSwings) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  BlockTable<std::unique_ptr<uint32_t>> table(random);
  std::map<uint64_t, uint32_t> truth;
  for (uint32_t step = 0; step < 300'000; ++step) {
    const uint64_t number = random.Below(step % 100'000 < 60'000 ? 30'000 : 60);
    const auto* const found = table.Find(Hash(number));
    ASSERT_EQ(found != nullptr, truth.contains(number)) << "step " << step;
    if (found == nullptr) {
      truth[number] = step;
      table[Hash(number)] = std::make_unique<uint32_t>(step);
    } else {
      ASSERT_EQ(**found, truth[number]) << "step " << step;
      ASSERT_EQ(table[Hash(number)].get(), found->get()) << "the one that is there";
      truth.erase(number);
      table.Erase(Hash(number));
    }
    ASSERT_EQ(table.size(), truth.size());
  }
}

// Blocks that differ in one byte are blocks of their own.
TEST(BlockTable, ComparesWholeHashes) {
  Random random(12);
  BlockTable<uint32_t> table(random);
  std::vector<BlockHash> near(33, Hash(1));
  for (size_t i = 0; i < 32; ++i) near[i].bytes[i] ^= 1;
  for (uint32_t i = 0; i < near.size(); ++i) table[near[i]] = i;
  EXPECT_EQ(table.size(), near.size());
  for (uint32_t i = 0; i < near.size(); ++i) EXPECT_EQ(*table.Find(near[i]), i);
  table.Erase(near[5]);
  table.Erase(near[5]);
  EXPECT_EQ(table.Find(near[5]), nullptr);
  EXPECT_EQ(table.size(), near.size() - 1);
}

// Whoever names blocks by one prefix makes no long search, and no addition is a long turn.
TEST(BlockTable, AnAdditionMovesABoundedNumberOfCellsWhateverBlocksAreNamed) {
  Random random(13);
  BlockTable<uint32_t> table(random);
  uint64_t before = 0, most = 0;
  BlockHash hash{};
  for (uint32_t i = 0; i < 300'000; ++i) {
    StoreLe<uint32_t>(hash.bytes.data() + 28, i);
    table[hash] = i;
    most = std::max(most, table.moved_cells() - before);
    before = table.moved_cells();
  }
  EXPECT_LE(most, 5 * 4096u);
  for (size_t piece = 0; piece < table.pieces(); ++piece) {
    const size_t size = table.size();
    table.ErasePiece(piece);
    EXPECT_LE(size - table.size(), 3 * 4096u);
  }
  EXPECT_TRUE(table.empty());
}

}  // namespace
}  // namespace cistern
