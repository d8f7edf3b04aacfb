#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/check.h"

namespace cistern {

// Open addressing for an index of many small cells, nine tenths full: cells stand in the order of their keys,
// as near behind the place that the key names as that allows. So a search ends at the first greater key,
// whether it finds anything or not, and room is made by an eighth, not by the double.
//
// No addition is a long turn, however many cells there are: the table is cut into pieces that grow each by
// itself, and one piece more for every kPieceCells cells, made by cutting the next of the older ones in two
// (linear hashing). An addition moves kMovedMax cells at most.
//
// A cell says its Order(): its upper 32 bits as good as random, below that of Cell{}, which is an empty one.
// Cells of one order stand side by side. Owner: an index. Thread: its owner's. Allocates only when it grows;
// gives back what a piece has that EraseIfIn has emptied.
template <typename Cell>
class CellTable {
 public:
  static constexpr uint64_t kPieceCells = 4096;  // The mean; one that was not cut yet has the double.
  // One piece is cut and one grows, each with twice the mean and what chance adds to that.
  static constexpr uint64_t kMovedMax = 5 * kPieceCells;

  CellTable() { pieces_.push_back(MakePiece(kPlacesMin)), sizes_.push_back(0); }

  // Where the first cell of this order or a greater one stands among its neighbours, or could: it is empty
  // when there is none. What follows are the next cells up to an empty one. Good until the next change.
  Cell* At(uint64_t order) { return From(Place(pieces_[NumberOf(order)], order), order); }
  // The same in two steps, for several searches at once: where to begin, which is asked of memory; and the
  // search.
  const Cell* Begin(uint64_t order) const {
    const Cell* const at = Place(pieces_[NumberOf(order)], order);
    __builtin_prefetch(at);
    return at;
  }
  static const Cell* Search(const Cell* begin, uint64_t order) { return From(begin, order); }

  // Where it stands, until the next change.
  Cell* Insert(Cell cell) {
    if (size_ >= count_ * kPieceCells) Cut();
    const size_t number = NumberOf(cell.Order());
    Piece& piece = pieces_[number];
    if ((sizes_[number] + 1) * uint64_t{10} > piece.places * uint64_t{9}) Grow(piece);
    Cell* at = From(Place(piece, cell.Order()), cell.Order());
    Cell* end = at;
    while (!IsEmpty(*end)) ++end;
    if (end + 1 == piece.end()) {  // The last one stays empty: searches end there.
      const ptrdiff_t from = at - piece.begin(), to = end - piece.begin();
      Lengthen(piece);
      at = piece.begin() + from;
      end = piece.begin() + to;
    }
    std::move_backward(at, end, end + 1);
    *at = std::move(cell);
    ++sizes_[number];
    ++size_;
    return at;
  }
  // Later cells move up as far as they stand behind their places: nothing is left where one was.
  void Erase(Cell* at) {
    const size_t number = NumberOf(at->Order());
    Cell* end = at + 1;
    while (!IsEmpty(*end) && Place(pieces_[number], end->Order()) < end) ++end;
    std::move(at + 1, end, at);
    *(end - 1) = Cell{};
    --sizes_[number];
    --size_;
  }
  // All cells are looked at, in bounded turns: a piece a turn, its number from 0 on until it is pieces().
  // Cells that a cut moves meanwhile go to a later piece. Condition(cell) is asked once for each.
  size_t pieces() const { return count_; }
  template <typename Condition>
  void EraseIfIn(size_t number, Condition condition) {
    Piece& piece = pieces_[number];
    Cell* to = piece.begin();
    for (Cell* at = piece.begin(); at < piece.end(); ++at) {
      if (IsEmpty(*at)) continue;
      Cell cell = std::exchange(*at, Cell{});
      if (condition(std::as_const(cell))) {
        --sizes_[number];
        --size_;
        continue;
      }
      to = std::max(to, Place(piece, cell.Order()));
      *to++ = std::move(cell);
    }
    if (sizes_[number] > 0 || piece.places == kPlacesMin) return;
    room_ -= piece.room;
    piece = MakePiece(kPlacesMin);
  }

  size_t size() const { return size_; }
  uint64_t memory_bytes() const {
    return room_ * sizeof(Cell) + pieces_.capacity() * (sizeof(Piece) + sizeof(uint32_t));
  }
  // By all additions together: for whoever asks what one of them costs.
  uint64_t moved_cells() const { return moved_; }

 private:
  static constexpr uint32_t kPlacesMin = 64;
  static constexpr uint32_t kTail = 32;  // Behind the last place; more where that is too short.

  // 16 bytes: of ten million cells all pieces stay in the L2 cache.
  struct Piece {
    std::unique_ptr<Cell[]> cells;
    uint32_t places = 0;
    uint32_t room = 0;  // Places and what is behind them.
    Cell* begin() const { return cells.get(); }
    Cell* end() const { return cells.get() + room; }
  };

  static Cell* Place(const Piece& piece, uint64_t order) {
    return piece.begin() + ((order >> 32) * piece.places >> 32);
  }
  template <typename Pointer>
  static Pointer From(Pointer at, uint64_t order) {
    while (at->Order() < order) ++at;
    return at;
  }
  static bool IsEmpty(const Cell& cell) { return cell.Order() == Cell{}.Order(); }
  // By bits that matter least to the place: as many as name all pieces, or one fewer where that piece is to
  // come.
  size_t NumberOf(uint64_t order) const {
    const size_t number = order >> 32 & mask_;
    return number < count_ ? number : number & mask_ >> 1;
  }

  Piece MakePiece(uint64_t places) {
    CISTERN_CHECK(places < UINT32_MAX / 2);
    const uint32_t room = static_cast<uint32_t>(places) + kTail;
    room_ += room;
    return {.cells = std::make_unique<Cell[]>(room), .places = static_cast<uint32_t>(places), .room = room};
  }
  void Lengthen(Piece& piece) {
    auto longer = std::make_unique<Cell[]>(piece.room + kTail);
    std::move(piece.begin(), piece.end(), longer.get());
    moved_ += piece.room;
    piece.cells = std::move(longer);
    piece.room += kTail;
    room_ += kTail;
  }
  // Cells come in their order, to a new piece; `at` is behind the one before.
  void Append(Piece& piece, uint32_t& at, Cell& cell) {
    at = std::max(at, static_cast<uint32_t>(Place(piece, cell.Order()) - piece.begin()));
    if (at + 1 >= piece.room) Lengthen(piece);
    piece.cells[at++] = std::move(cell);
    ++moved_;
  }
  void Grow(Piece& piece) {
    Piece grown = MakePiece(piece.places + std::max(piece.places / 8, kPlacesMin));
    uint32_t at = 0;
    ForEachIn(piece, [&](Cell& cell) { Append(grown, at, cell); });
    room_ -= piece.room;
    piece = std::move(grown);
  }
  // The cells of one piece from here on lie in two.
  void Cut() {
    if (count_ > mask_) mask_ = mask_ * 2 + 1;
    const size_t number = count_ & mask_ >> 1;
    const auto goes = [&](const Cell& cell) { return (cell.Order() >> 32 & mask_) == count_; };
    uint32_t going = 0;
    ForEachIn(pieces_[number], [&](const Cell& cell) { going += goes(cell); });
    Piece first = MakePiece(PlacesFor(sizes_[number] - going)), second = MakePiece(PlacesFor(going));
    uint32_t at_first = 0, at_second = 0;
    ForEachIn(pieces_[number], [&](Cell& cell) {
      goes(cell) ? Append(second, at_second, cell) : Append(first, at_first, cell);
    });
    room_ -= pieces_[number].room;
    pieces_[number] = std::move(first);
    sizes_[number] -= going;
    pieces_.push_back(std::move(second));
    sizes_.push_back(going);
    ++count_;
  }
  static uint64_t PlacesFor(uint64_t cells) { return std::max<uint64_t>(cells + cells / 6, kPlacesMin); }
  template <typename Visit>
  static void ForEachIn(const Piece& piece, Visit visit) {
    for (uint32_t at = 0; at < piece.room; ++at) {
      if (!IsEmpty(piece.cells[at])) visit(piece.cells[at]);
    }
  }

  size_t mask_ = 0;
  size_t count_ = 1;  // Of pieces.
  size_t size_ = 0;
  uint64_t room_ = 0;
  uint64_t moved_ = 0;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> sizes_;  // By piece.
};

}  // namespace cistern
