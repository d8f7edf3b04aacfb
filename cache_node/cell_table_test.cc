#include "cache_node/cell_table.h"

#include <gtest/gtest.h>

#include <map>

#include "core/random.h"

namespace cistern {
namespace {

struct Cell {
  uint64_t order = UINT64_MAX;
  uint32_t value = 0;
  uint64_t Order() const { return order; }
};

const Cell* Find(CellTable<Cell>& table, uint64_t order) {
  const Cell* const cell = table.At(order);
  return cell->order == order ? cell : nullptr;
}

TEST(CellTable, AgreesWithAMapWhileItsSizeSwings) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  CellTable<Cell> table;
  std::map<uint64_t, uint32_t> truth;
  std::vector<uint64_t> known;
  for (int i = 0; i < 60'000; ++i) known.push_back(random.Next() - 1);
  for (uint32_t step = 0; step < 600'000; ++step) {
    const uint64_t order = known[random.Below(step % 150'000 < 90'000 ? known.size() : 60)];
    const auto it = truth.find(order);
    const Cell* found = Find(table, order);
    ASSERT_EQ(found != nullptr, it != truth.end()) << "step " << step;
    if (found == nullptr) {
      truth[order] = step;
      table.Insert({.order = order, .value = step});
    } else {
      ASSERT_EQ(found->value, it->second) << "step " << step;
      truth.erase(it);
      table.Erase(table.At(order));
    }
    ASSERT_EQ(table.size(), truth.size());
  }
}

// All keys want the last place, or the same one: the table must take them, and grow where its end is too
// short.
TEST(CellTable, TakesKeysThatAllBelongInOnePlace) {
  for (const uint64_t upper : {uint64_t{0}, uint64_t{0x80000000}, uint64_t{UINT32_MAX}}) {
    SCOPED_TRACE(upper);
    CellTable<Cell> table;
    for (uint32_t i = 0; i < 500; ++i) {
      const uint64_t order = upper << 32 | (i * 7 % 500);
      ASSERT_EQ(Find(table, order), nullptr);
      table.Insert({.order = order, .value = i});
    }
    for (uint32_t i = 0; i < 500; ++i) {
      const Cell* found = Find(table, upper << 32 | (i * 7 % 500));
      ASSERT_NE(found, nullptr);
      ASSERT_EQ(found->value, i);
    }
    for (uint32_t i = 0; i < 500; i += 2) table.Erase(table.At(upper << 32 | i));
    for (uint32_t i = 0; i < 500; ++i) ASSERT_EQ(Find(table, upper << 32 | i) != nullptr, i % 2 == 1) << i;
  }
}

TEST(CellTable, ErasesWhatACallerChooses) {
  Random random(6);
  CellTable<Cell> table;
  std::map<uint64_t, uint32_t> truth;
  for (uint32_t i = 0; i < 20'000; ++i) {
    const uint64_t order = random.Next() - 1;
    truth[order] = i % 3;
    table.Insert({.order = order, .value = i % 3});
  }
  size_t asked = 0, most = 0;
  for (size_t piece = 0; piece < table.pieces(); ++piece) {
    const size_t before = asked;
    table.EraseIfIn(piece, [&](const Cell& cell) {
      ++asked;
      return cell.value != 1;
    });
    most = std::max(most, asked - before);
  }
  EXPECT_EQ(asked, truth.size()) << "each is asked about once";
  EXPECT_LE(most, 3 * CellTable<Cell>::kPieceCells) << "a turn's work has a bound";
  for (const auto& [order, value] : truth) ASSERT_EQ(Find(table, order) != nullptr, value == 1);
  for (size_t piece = 0; piece < table.pieces(); ++piece)
    table.EraseIfIn(piece, [](const Cell&) { return true; });
  EXPECT_EQ(table.size(), 0u);
}

// Between the pieces of a walk others add: what was there is met all the same, wherever a cut has moved it.
TEST(CellTable, AWalkInPiecesMeetsWhatIsCutMeanwhile) {
  Random random(9);
  CellTable<Cell> table;
  for (uint32_t i = 0; i < 30'000; ++i) table.Insert({.order = random.Next() - 1, .value = 1});
  const size_t pieces = table.pieces();
  for (size_t piece = 0; piece < table.pieces(); ++piece) {
    table.EraseIfIn(piece, [](const Cell& cell) { return cell.value == 1; });
    for (uint32_t i = 0; i < 7'000 && piece < pieces; ++i)
      table.Insert({.order = random.Next() - 1, .value = 2});
  }
  EXPECT_GT(table.pieces(), pieces) << "or nothing was tried";
  EXPECT_EQ(table.size(), 7'000 * pieces);
}

// Clients name blocks: nothing keeps two cells' orders apart.
TEST(CellTable, KeepsCellsOfOneOrderSideBySide) {
  CellTable<Cell> table;
  constexpr uint64_t kOrder = uint64_t{77} << 32;
  for (uint32_t i = 0; i < 40; ++i) table.Insert({.order = kOrder, .value = i});
  for (uint32_t i = 0; i < 40; ++i) table.Insert({.order = kOrder + 1, .value = i});
  uint64_t seen = 0;
  for (const Cell* at = table.At(kOrder); at->order == kOrder; ++at) seen |= uint64_t{1} << at->value;
  EXPECT_EQ(seen, (uint64_t{1} << 40) - 1);
}

// No addition may be a long turn of its shard, however many cells are there.
TEST(CellTable, AnAdditionMovesABoundedNumberOfCells) {
  Random random(8);
  CellTable<Cell> table;
  uint64_t before = 0, most = 0;
  for (uint32_t i = 1; i <= 2'000'000; ++i) {
    table.Insert({.order = random.Next() - 1, .value = i});
    most = std::max(most, table.moved_cells() - before);
    before = table.moved_cells();
  }
  EXPECT_LE(most, CellTable<Cell>::kMovedMax);
  EXPECT_LE(before, 20 * table.size()) << "all of them together stay cheap, too";
}

TEST(CellTable, F21_IsEightToNineTenthsFull) {
  Random random(7);
  CellTable<Cell> table;
  for (uint32_t i = 1; i <= 300'000; ++i) {
    table.Insert({.order = random.Next() - 1, .value = i});
    if (i < 10'000) continue;  // The end behind the last place still counts.
    ASSERT_LE(table.memory_bytes(), i * sizeof(Cell) * 127 / 100) << i;
    ASSERT_GE(table.memory_bytes(), i * sizeof(Cell) * 111 / 100) << i;
  }
}

}  // namespace
}  // namespace cistern
