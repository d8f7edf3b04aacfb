#include "cache_node/block_index.h"

#include <array>
#include <cstring>

#include "core/check.h"

namespace cistern {

bool BlockIndex::Matches(SlotId slot, const BlockHash& hash, uint32_t coord) const {
  const SlotTrailer& trailer = pool_.trailer(slot);
  return trailer.coord == coord && std::memcmp(trailer.hash, hash.bytes.data(), hash.bytes.size()) == 0;
}

void BlockIndex::FindBatch(absl::Span<Probe> probes) {
  CISTERN_CHECK(probes.size() <= kProbeBatchMax);
  std::array<const Cell*, kProbeBatchMax> at;
  for (size_t i = 0; i < probes.size(); ++i) {
    probes[i].key = Key(*probes[i].hash, probes[i].coord);
    at[i] = cells_.Begin(uint64_t{probes[i].key} << 32);
  }
  // The first cell with the right key is nearly always the one; its trailer is asked for before any is
  // compared.
  for (size_t i = 0; i < probes.size(); ++i) {
    at[i] = cells_.Search(at[i], uint64_t{probes[i].key} << 32);
    probes[i].slot = kNoSlot;
    if (const Cell& cell = *at[i]; HasKey(cell, probes[i].key)) {
      __builtin_prefetch(&pool_.trailer(cell.slot));
      __builtin_prefetch(&pool_.record(cell.slot));
    }
  }
  for (size_t i = 0; i < probes.size(); ++i) {
    Probe& probe = probes[i];
    for (const Cell* cell = at[i]; HasKey(*cell, probe.key); ++cell) {
      if (!Matches(cell->slot, *probe.hash, probe.coord)) continue;
      probe.slot = cell->slot;
      break;
    }
  }
}

SlotId BlockIndex::Find(const BlockHash& hash, uint32_t coord) {
  Probe probe{.hash = &hash, .coord = coord};
  FindBatch(absl::MakeSpan(&probe, 1));
  return probe.slot;
}

void BlockIndex::Insert(SlotId slot) {
  const SlotTrailer& trailer = pool_.trailer(slot);
  BlockHash hash;
  std::memcpy(hash.bytes.data(), trailer.hash, hash.bytes.size());
  const uint32_t key = Key(hash, trailer.coord);
  pool_.record(slot).key = key;
  cells_.Insert({.slot = slot, .key = key});
}

void BlockIndex::Erase(SlotId slot) {
  // The key comes from the node's own record, not from the arena: a flipped bit there must not strand the
  // cell.
  Cell* const at = cells_.At(Cell{.slot = slot, .key = pool_.record(slot).key}.Order());
  CISTERN_CHECK(at->slot == slot);
  cells_.Erase(at);
}

}  // namespace cistern
