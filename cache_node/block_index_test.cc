#include "cache_node/block_index.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "core/part.h"

namespace cistern {
namespace {

constexpr uint64_t kRam = 64u << 20;

struct World {
  World() : random(11) {
    auto made = MemoryRegion::Create("index-test", SlabPool::RegionBytes(kRam), true);
    EXPECT_TRUE(made.ok());
    region = std::make_unique<MemoryRegion>(*std::move(made));
    pool = std::make_unique<SlabPool>(*region, kRam);
    index = std::make_unique<BlockIndex>(*pool, random);
    size_class = pool->ClassFor(4096);
  }
  BlockHash Hash() {
    BlockHash hash;
    for (size_t i = 0; i < 32; i += 8) StoreLe<uint64_t>(hash.bytes.data() + i, random.Next());
    return hash;
  }
  SlotId Add(const BlockHash& hash, uint32_t coord) {
    const SlotId slot = pool->TryTake(size_class);
    std::memcpy(pool->trailer(slot).hash, hash.bytes.data(), 32);
    pool->trailer(slot).coord = coord;
    index->Insert(slot);
    return slot;
  }
  void Remove(SlotId slot) {
    index->Erase(slot);
    pool->Free(slot);
  }
  Random random;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<SlabPool> pool;
  std::unique_ptr<BlockIndex> index;
  ClassId size_class = kNoClass;
};

TEST(BlockIndex, AgreesWithAMapOverRandomInsertsAndErases) {
  World w;
  std::map<std::pair<BlockHash, uint32_t>, SlotId> truth;
  std::vector<std::pair<BlockHash, uint32_t>> known;
  for (int i = 0; i < 300; ++i) known.emplace_back(w.Hash(), static_cast<uint32_t>(i % 3));
  for (int step = 0; step < 60'000; ++step) {
    // The number of keys swings, so clusters grow and shrink.
    const auto& key = known[w.random.Below(step % 20'000 < 10'000 ? known.size() : 40)];
    const auto it = truth.find(key);
    ASSERT_EQ(w.index->Find(key.first, key.second), it == truth.end() ? kNoSlot : it->second)
        << "step " << step;
    if (it == truth.end()) {
      truth[key] = w.Add(key.first, key.second);
    } else {
      w.Remove(it->second);
      truth.erase(it);
    }
    ASSERT_EQ(w.index->size(), truth.size());
  }
}

TEST(BlockIndex, F07_PartsOfOneBlockAreEntriesOfTheirOwn) {
  World w;
  const BlockHash hash = w.Hash();
  const SlotId first = w.Add(hash, PartCoord{.slice = 0, .span = 0}.Packed());
  const SlotId second = w.Add(hash, PartCoord{.slice = 1, .span = 0}.Packed());
  EXPECT_EQ(w.index->Find(hash, PartCoord{.slice = 0}.Packed()), first);
  EXPECT_EQ(w.index->Find(hash, PartCoord{.slice = 1}.Packed()), second);
  EXPECT_EQ(w.index->Find(hash, PartCoord{.span = 1}.Packed()), kNoSlot);
  w.Remove(first);
  EXPECT_EQ(w.index->Find(hash, PartCoord{.slice = 0}.Packed()), kNoSlot);
  EXPECT_EQ(w.index->Find(hash, PartCoord{.slice = 1}.Packed()), second);
}

TEST(BlockIndex, TellsApartHashesThatDifferInTheLastByteAlone) {
  World w;
  BlockHash hash = w.Hash();
  w.Add(hash, 0);
  hash.bytes[31] ^= 1;
  EXPECT_EQ(w.index->Find(hash, 0), kNoSlot);
}

TEST(BlockIndex, KeepsLookupsRightWhileItGrows) {
  World w;
  std::vector<std::pair<BlockHash, SlotId>> added;
  for (int i = 0; i < 10'000; ++i) {
    const BlockHash hash = w.Hash();
    added.emplace_back(hash, w.Add(hash, 0));
  }
  std::vector<Probe> probes;
  for (const auto& [hash, slot] : added) {
    probes.push_back({.hash = &hash});
    if (probes.size() < kProbeBatchMax) continue;
    w.index->FindBatch(absl::MakeSpan(probes));
    for (const Probe& probe : probes) ASSERT_NE(probe.slot, kNoSlot);
    probes.clear();
  }
  for (const auto& [hash, slot] : added) ASSERT_EQ(w.index->Find(hash, 0), slot);
}

TEST(BlockIndex, ErasingLeavesNoTombstones) {
  World w;
  std::vector<SlotId> slots;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 180; ++i) slots.push_back(w.Add(w.Hash(), 0));
    for (const SlotId slot : slots) w.Remove(slot);
    slots.clear();
  }
  EXPECT_LE(w.index->metadata_bytes(), 320 * sizeof(uint64_t)) << "36,000 inserts of at most 180 at a time";
}

TEST(BlockIndex, AFlippedBitInTheArenaNeitherHitsNorStrandsTheEntry) {
  World w;
  const BlockHash hash = w.Hash();
  const SlotId slot = w.Add(hash, 0);
  w.pool->trailer(slot).hash[9] ^= 0x10;
  EXPECT_EQ(w.index->Find(hash, 0), kNoSlot);
  w.Remove(slot);
  EXPECT_EQ(w.index->size(), 0u);
}

}  // namespace
}  // namespace cistern
