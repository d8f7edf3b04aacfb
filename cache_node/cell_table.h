#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/check.h"

namespace cistern {

// Open addressing for an index of many small cells, nine tenths full: cells stand in the order of their keys,
// as near behind the place that the key names as that allows. So a search ends at the first greater key,
// whether it finds anything or not, and the table grows by an eighth, not to the double, in one pass from
// front to back.
//
// A cell says its Order(): unique in the table, its upper 32 bits as good as random, below that of Cell{},
// which is an empty one. Owner: an index. Thread: its owner's. Allocates only when it grows; never shrinks.
template <typename Cell>
class CellTable {
 public:
  CellTable() : cells_(kPlacesMin + kTail) {}

  // Where the first cell of this order or a greater one stands, or could: it is empty when there is none.
  size_t At(uint64_t order) const {
    size_t at = Place(order, places_);
    while (cells_[at].Order() < order) ++at;
    return at;
  }
  Cell& operator[](size_t at) { return cells_[at]; }
  const Cell& operator[](size_t at) const { return cells_[at]; }
  void Prefetch(uint64_t order) const { __builtin_prefetch(&cells_[Place(order, places_)]); }

  // No cell there has its order.
  void Insert(const Cell& cell) {
    if ((size_ + 1) * 10 > places_ * 9) Grow();
    const size_t at = At(cell.Order());
    size_t end = at;
    while (!IsEmpty(end)) ++end;
    if (end + 1 == cells_.size())
      cells_.resize(cells_.size() + kTail);  // The last one stays empty: searches end there.
    std::move_backward(cells_.begin() + Signed(at), cells_.begin() + Signed(end),
                       cells_.begin() + Signed(end + 1));
    cells_[at] = cell;
    ++size_;
  }
  // Later cells move up as far as they stand behind their places: nothing is left where one was.
  void Erase(size_t at) {
    size_t end = at + 1;
    while (!IsEmpty(end) && Place(cells_[end].Order(), places_) < end) ++end;
    std::move(cells_.begin() + Signed(at + 1), cells_.begin() + Signed(end), cells_.begin() + Signed(at));
    cells_[end - 1] = Cell{};
    --size_;
  }
  template <typename Condition>
  void EraseIf(Condition condition) {
    for (size_t at = 0; at < cells_.size();) {
      if (!IsEmpty(at) && condition(std::as_const(cells_[at]))) {
        Erase(at);
      } else {
        ++at;
      }
    }
  }

  size_t size() const { return size_; }
  uint64_t memory_bytes() const { return cells_.size() * sizeof(Cell); }

 private:
  static constexpr uint64_t kPlacesMin = 64;
  static constexpr uint64_t kTail = 64;  // Behind the last place; more where that is too short.

  static size_t Place(uint64_t order, uint64_t places) { return (order >> 32) * places >> 32; }
  static std::ptrdiff_t Signed(size_t at) { return static_cast<std::ptrdiff_t>(at); }
  bool IsEmpty(size_t at) const { return cells_[at].Order() == Cell{}.Order(); }

  void Grow() {
    places_ += std::max(places_ / 8, kPlacesMin);
    CISTERN_CHECK(places_ < uint64_t{1} << 32);
    std::vector<Cell> grown(places_ + kTail);
    size_t at = 0;
    for (const Cell& cell : cells_) {
      if (cell.Order() == Cell{}.Order()) continue;
      at = std::max(at, Place(cell.Order(), places_));
      if (at + 1 >= grown.size()) grown.resize(grown.size() + kTail);
      grown[at++] = cell;
    }
    cells_ = std::move(grown);
  }

  uint64_t places_ = kPlacesMin;
  size_t size_ = 0;
  std::vector<Cell> cells_;
};

}  // namespace cistern
