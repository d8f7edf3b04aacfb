#include "cache_node/block_index.h"

#include "core/bytes.h"
#include "core/check.h"

namespace cistern {
namespace {

// 64 x 64 -> 128 bits, folded: the mixing step of wyhash-like hashes.
inline uint64_t Fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

BlockIndex::BlockIndex(SlabPool& pool, Random& random) : pool_(pool) {
  for (uint64_t& word : secret_) word = random.Next() | 1;
  cells_.assign(size_t{1} << kBitsMin, kEmpty);
  mask_ = cells_.size() - 1;
}

uint64_t BlockIndex::Key(const BlockHash& hash, uint32_t coord) const {
  const uint8_t* bytes = hash.bytes.data();
  const uint64_t low = Fold(LoadLe<uint64_t>(bytes) ^ secret_[0], LoadLe<uint64_t>(bytes + 8) ^ secret_[1]);
  const uint64_t high =
      Fold(LoadLe<uint64_t>(bytes + 16) ^ secret_[2], LoadLe<uint64_t>(bytes + 24) ^ secret_[3]);
  return Fold(low ^ coord, high ^ secret_[1]);
}

bool BlockIndex::Matches(SlotId slot, const BlockHash& hash, uint32_t coord) const {
  const SlotTrailer& trailer = pool_.trailer(slot);
  return trailer.coord == coord && std::memcmp(trailer.hash, hash.bytes.data(), hash.bytes.size()) == 0;
}

void BlockIndex::FindBatch(absl::Span<Probe> probes) {
  CISTERN_CHECK(probes.size() <= kProbeBatchMax);
  for (Probe& probe : probes) {
    probe.key = Key(*probe.hash, probe.coord);
    __builtin_prefetch(&cells_[Home(static_cast<uint32_t>(probe.key >> 32))]);
  }
  // The first cell with the right tag is nearly always the one; its trailer is asked for before any is
  // compared.
  std::array<size_t, kProbeBatchMax> at;
  for (size_t i = 0; i < probes.size(); ++i) {
    Probe& probe = probes[i];
    const auto tag = static_cast<uint32_t>(probe.key);
    size_t cell = Home(static_cast<uint32_t>(probe.key >> 32));
    while (cells_[cell] != kEmpty && cells_[cell] >> 32 != tag) cell = (cell + 1) & mask_;
    at[i] = cell;
    probe.slot = kNoSlot;
    if (cells_[cell] != kEmpty) {
      const auto slot = static_cast<SlotId>(cells_[cell]);
      __builtin_prefetch(&pool_.trailer(slot));
      __builtin_prefetch(&pool_.record(slot));
    }
  }
  for (size_t i = 0; i < probes.size(); ++i) {
    Probe& probe = probes[i];
    const auto tag = static_cast<uint32_t>(probe.key);
    for (size_t cell = at[i]; cells_[cell] != kEmpty; cell = (cell + 1) & mask_) {
      const auto slot = static_cast<SlotId>(cells_[cell]);
      if (cells_[cell] >> 32 == tag && Matches(slot, *probe.hash, probe.coord)) {
        probe.slot = slot;
        break;
      }
    }
  }
}

SlotId BlockIndex::Find(const BlockHash& hash, uint32_t coord) {
  Probe probe{.hash = &hash, .coord = coord};
  FindBatch(absl::MakeSpan(&probe, 1));
  return probe.slot;
}

void BlockIndex::Place(uint32_t upper, uint64_t cell) {
  size_t at = Home(upper);
  while (cells_[at] != kEmpty) at = (at + 1) & mask_;
  cells_[at] = cell;
}

void BlockIndex::Insert(SlotId slot) {
  if ((size_ + 1) * 16 > cells_.size() * 13) Grow();  // 8 to 10 bytes a part just before, 20 just after.
  const SlotTrailer& trailer = pool_.trailer(slot);
  BlockHash hash;
  std::memcpy(hash.bytes.data(), trailer.hash, hash.bytes.size());
  const uint64_t key = Key(hash, trailer.coord);
  const auto upper = static_cast<uint32_t>(key >> 32);
  pool_.record(slot).key_upper = upper;
  Place(upper, key << 32 | slot);
  ++size_;
}

void BlockIndex::Grow() {
  std::vector<uint64_t> old = std::move(cells_);
  cells_.assign(old.size() * 2, kEmpty);
  mask_ = cells_.size() - 1;
  CISTERN_CHECK(shift_ > 0);  // 2^32 cells are more than a shard's slots.
  --shift_;
  constexpr size_t kAhead = 16;
  for (size_t i = 0; i < old.size(); ++i) {
    if (i + kAhead < old.size() && old[i + kAhead] != kEmpty) {
      __builtin_prefetch(&pool_.record(static_cast<SlotId>(old[i + kAhead])));
    }
    if (old[i] == kEmpty) continue;
    Place(pool_.record(static_cast<SlotId>(old[i])).key_upper, old[i]);
  }
}

void BlockIndex::Erase(SlotId slot) {
  // The key comes from the node's own record, not from the arena: a flipped bit there must not strand the
  // cell.
  size_t hole = Home(pool_.record(slot).key_upper);
  while (static_cast<SlotId>(cells_[hole]) != slot || cells_[hole] == kEmpty) {
    CISTERN_CHECK(cells_[hole] != kEmpty);
    hole = (hole + 1) & mask_;
  }
  --size_;
  // Shift back every later cell of the cluster that may stand in the hole.
  for (size_t cell = (hole + 1) & mask_; cells_[cell] != kEmpty; cell = (cell + 1) & mask_) {
    const size_t home = Home(pool_.record(static_cast<SlotId>(cells_[cell])).key_upper);
    if (((cell - home) & mask_) >= ((cell - hole) & mask_)) {
      cells_[hole] = cells_[cell];
      hole = cell;
    }
  }
  cells_[hole] = kEmpty;
}

}  // namespace cistern
