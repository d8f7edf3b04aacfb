#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cache_node/cell_table.h"
#include "cache_node/part_mixer.h"
#include "core/ids.h"
#include "core/random.h"

namespace cistern {

// Something about each of many blocks that no addition may be a long turn for, and nobody can aim at one
// place of (docs/adr/0027). Found by the whole hash. Owner: whose noun it is. Thread: its owner's. Allocates
// only when it grows.
template <typename Value>
class BlockTable {
 public:
  explicit BlockTable(Random& random) : mix_(random) {}

  // Good until the next change; null: the block has none.
  Value* Find(const BlockHash& block) {
    Cell* const cell = At(block);
    return cell == nullptr ? nullptr : &cell->value;
  }
  const Value* Find(const BlockHash& block) const { return const_cast<BlockTable*>(this)->Find(block); }
  // The block's value, a new one where it had none.
  Value& operator[](const BlockHash& block) {
    Cell* cell = At(block);
    if (cell == nullptr) cell = cells_.Insert({.order = Order(block), .block = block, .value = {}});
    return cell->value;
  }
  // Nothing where the block has none.
  void Erase(const BlockHash& block) {
    if (Cell* const cell = At(block); cell != nullptr) cells_.Erase(cell);
  }
  // As of CellTable::EraseIfIn, for all of a piece.
  size_t pieces() const { return cells_.pieces(); }
  void ErasePiece(size_t number) {
    cells_.EraseIfIn(number, [](const Cell&) { return true; });
  }

  size_t size() const { return cells_.size(); }
  bool empty() const { return cells_.size() == 0; }
  uint64_t memory_bytes() const { return cells_.memory_bytes(); }
  uint64_t moved_cells() const { return cells_.moved_cells(); }

 private:
  struct Cell {
    uint64_t order = UINT64_MAX;
    BlockHash block{};
    Value value{};
    uint64_t Order() const { return order; }
  };

  // Never an empty cell's.
  uint64_t Order(const BlockHash& block) const { return std::min(mix_(block, 0), UINT64_MAX - 1); }
  Cell* At(const BlockHash& block) {
    const uint64_t order = Order(block);
    for (Cell* at = cells_.At(order); at->order == order; ++at) {
      if (at->block == block) return at;
    }
    return nullptr;
  }

  const PartMixer mix_;
  CellTable<Cell> cells_;
};

}  // namespace cistern
