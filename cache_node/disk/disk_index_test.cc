#include "cache_node/disk/disk_index.h"

#include <gtest/gtest.h>

#include <vector>

#include "cache_node/disk/extent_table.h"

namespace cistern {
namespace {

BlockHash Hash(Random& random) {
  BlockHash hash;
  for (size_t i = 0; i < 32; i += 8) StoreLe<uint64_t>(hash.bytes.data() + i, random.Next());
  return hash;
}

TEST(DiskIndex, KeepsTheGreatestPlacesAndLengths) {
  Random random(1);
  DiskIndex index(random);
  const uint32_t last_page = kExtentBytes / kPageBytes - 1;
  for (const uint32_t page : {1u, 2u, 9000u, last_page}) {
    for (const uint32_t at : {0u, kPartAlign, kRecordPayloadMax - kPartAlign}) {
      for (const FileId extent : {FileId{0}, FileId{77}, kExtentsMax - 1}) {
        const BlockHash hash = Hash(random);
        DiskEntry entry;
        entry.SetPlace(extent, page, (page + 1) * kPageBytes + at);
        entry.length = kPartBytesMax;
        entry.layout = kDiskLayoutsMax - 1;
        entry.uses = kDiskUsesMax;
        entry.durable = true;
        entry.retention = 7;
        index.Insert(hash, {}, entry);
        const DiskEntry* found = index.Find(hash, {});
        ASSERT_NE(found, nullptr);
        EXPECT_EQ(found->extent, extent);
        EXPECT_EQ(found->page, page);
        EXPECT_EQ(found->record_at(), page * kPageBytes);
        EXPECT_EQ(found->data_at(), (page + 1) * kPageBytes + at);
        EXPECT_EQ(found->length, kPartBytesMax);
        EXPECT_EQ(found->layout, kDiskLayoutsMax - 1);
        EXPECT_EQ(found->uses, kDiskUsesMax);
        EXPECT_TRUE(found->durable);
        EXPECT_EQ(found->retention, 7u);
        EXPECT_TRUE(found->IsAt(extent, (page + 1) * kPageBytes + at));
        EXPECT_FALSE(found->IsAt(extent ^ 1, (page + 1) * kPageBytes + at));
        EXPECT_FALSE(found->IsAt(extent, (page + 1) * kPageBytes + (at ^ kPartAlign)));
      }
    }
  }
}

TEST(DiskIndex, F01_AFingerprintThatDiffersInOneBitIsAnother) {
  Random random(2);
  const uint64_t fingerprint = random.Next();
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(DiskEntry::Fold(fingerprint), DiskEntry::Fold(fingerprint ^ uint64_t{1} << bit)) << bit;
  }
}

TEST(DiskIndex, F07_PartsOfOneBlockAreEntriesOfTheirOwn) {
  Random random(3);
  DiskIndex index(random);
  const BlockHash hash = Hash(random);
  DiskEntry entry;
  entry.length = 1;
  index.Insert(hash, {.slice = 1}, entry);
  entry.length = 2;
  index.Insert(hash, {.span = 1}, entry);
  EXPECT_EQ(index.Find(hash, {}), nullptr);
  EXPECT_EQ(index.Find(hash, {.slice = 1})->length, 1u);
  EXPECT_EQ(index.Find(hash, {.span = 1})->length, 2u);
  entry.length = 3;
  index.Insert(hash, {.span = 1}, entry);
  EXPECT_EQ(index.size(), 2u) << "replaced";
  EXPECT_EQ(index.Find(hash, {.span = 1})->length, 3u);
  index.Erase(hash, {.slice = 1});
  EXPECT_EQ(index.Find(hash, {.slice = 1}), nullptr);
  EXPECT_EQ(index.Find(hash, {.span = 1})->length, 3u);
}

TEST(DiskIndex, F21_APartCostsAtMost25BytesOfMetadata) {
  Random random(4);
  DiskIndex index(random);
  std::vector<BlockHash> known;
  for (uint32_t i = 1; i <= 200'000; ++i) {
    known.push_back(Hash(random));
    DiskEntry entry;
    entry.length = i;
    index.Insert(known.back(), {}, entry);
    if (i >= 100'000) {
      ASSERT_LE(index.metadata_bytes(), uint64_t{i} * 25 + 2048) << i;
    }
  }
  EXPECT_GE(index.metadata_bytes(), known.size() * sizeof(DiskEntry));
  for (uint32_t i = 0; i < known.size(); ++i) ASSERT_EQ(index.Find(known[i], {})->length, i + 1);
}

}  // namespace
}  // namespace cistern
