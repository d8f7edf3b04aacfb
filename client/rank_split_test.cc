#include "client/rank_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/random.h"
#include "proto/layout_catalog.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 20330;
constexpr uint32_t kTp = 8;

struct World {
  explicit World(const char* name, uint32_t blocks = 200)
      : layout(MakeGroupLayout(FindLayout(name)->layout, 64)) {
    Random random(kSeed);
    for (uint32_t i = 0; i < blocks; ++i) {
      BlockKey key;
      for (uint8_t& byte : key.hash.bytes) byte = static_cast<uint8_t>(random.Next());
      chain.push_back(key);
    }
    for (uint32_t rank = 0; rank < kTp; ++rank)
      shares.push_back(*ShareOf(layout->layout, {.tp = kTp, .tp_rank = rank}));
  }
  static CallOptions Options(uint32_t rank, uint32_t host_ranks = 1) {
    CallOptions options;
    options.tp = kTp;
    options.tp_rank = rank;
    options.host_ranks = host_ranks;
    return options;
  }
  std::shared_ptr<const GroupLayout> layout;
  std::vector<BlockKey> chain;
  std::vector<std::vector<GroupShare>> shares;
};

using Written = std::map<std::pair<uint32_t, uint32_t>, int>;  // (block, part) -> by how many.

class EveryLayout : public ::testing::TestWithParam<const char*> {};

// Eight ranks store a prompt: each part of each block is written by exactly one of them, from its place in
// that rank's page.
TEST_P(EveryLayout, EachPartHasOneWriter) {
  World w(GetParam());
  Written written;
  std::vector<uint64_t> bytes(kTp);
  for (uint32_t rank = 0; rank < kTp; ++rank) {
    const CallOptions options = World::Options(rank);
    const RankSplit split(*w.layout, w.shares[rank], options, RankSplit::For::kStore);
    uint32_t next = 3;
    for (const RankPiece& piece : split.History(w.chain, 3, 190)) {
      EXPECT_EQ(piece.first, next);
      next += piece.count;
      uint64_t in_ranges = 0;
      for (const auto& [at, size] : piece.mine.ranges) in_ranges += size;
      EXPECT_EQ(in_ranges, piece.mine.parts.TotalBytes());
      bytes[rank] += in_ranges * piece.count;
      for (uint32_t block = piece.first; block < piece.first + piece.count; ++block) {
        for (const PartCoord& coord : piece.mine.parts.coords) ++written[{block, coord.Packed()}];
      }
    }
    EXPECT_EQ(next, 193u);
  }
  const StoredParts& all = w.layout->sets.front().parts;
  EXPECT_EQ(written.size(), 190 * all.coords.size());
  for (const auto& [part, times] : written) EXPECT_EQ(times, 1) << part.first << " " << part.second;
  // The work spreads: 12 stretches of blocks over the ranks, none idle where ranks have parts of their own.
  uint64_t total = 0, most = 0;
  for (const uint64_t one : bytes) total += one, most = std::max(most, one);
  EXPECT_EQ(total, 190 * all.TotalBytes());
  EXPECT_LE(most, total / 2);
}

TEST_P(EveryLayout, EachPartOfATailHasOneWriter) {
  World w(GetParam());
  if (!w.layout->has_tails) return;
  const uint64_t tokens = 64 * uint64_t{w.layout->align_tokens()};
  const StoredParts whole = w.layout->TailAt(tokens);
  std::set<uint32_t> writers;
  for (const BlockKey& block : w.chain) {
    std::map<uint32_t, int> written;
    for (uint32_t rank = 0; rank < kTp; ++rank) {
      const CallOptions options = World::Options(rank);
      const RankParts mine =
          RankSplit(*w.layout, w.shares[rank], options, RankSplit::For::kStore).Tail(block.hash, tokens);
      for (const PartCoord& coord : mine.parts.coords) ++written[coord.Packed()];
      if (!mine.parts.coords.empty()) writers.insert(rank);
    }
    EXPECT_EQ(written.size(), whole.coords.size());
    for (const auto& [part, times] : written) EXPECT_EQ(times, 1) << part;
  }
  EXPECT_EQ(writers.size(), kTp);
}

// Two hosts of four ranks: what ranks of one host hold alike comes to that host once.
TEST_P(EveryLayout, EachHostPullsAPartOnce) {
  World w(GetParam());
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> pulled;  // (host, block, part)
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> held;
  for (uint32_t rank = 0; rank < kTp; ++rank) {
    const CallOptions options = World::Options(rank, 4);
    const RankSplit split(*w.layout, w.shares[rank], options, RankSplit::For::kLoad);
    StoredParts mine;
    for (const uint32_t group : w.layout->sets.front().groups)
      AppendParts(w.layout->layout, group, w.shares[rank][group], 0, w.layout->scale, mine);
    for (uint32_t block = 0; block < 200; ++block) {
      for (const PartCoord& coord : mine.coords) ++held[{rank / 4, block, coord.Packed()}];
    }
    for (const RankPiece& piece : split.History(w.chain, 0, 200)) {
      for (uint32_t block = piece.first; block < piece.first + piece.count; ++block) {
        for (const PartCoord& coord : piece.mine.parts.coords) {
          ++pulled[{rank / 4, block, coord.Packed()}];
          EXPECT_EQ(split.RankOf(coord.group, w.chain[block / kElectionBlocks * kElectionBlocks].hash), rank);
        }
      }
    }
  }
  EXPECT_EQ(pulled.size(), held.size());
  for (const auto& [part, times] : pulled) EXPECT_EQ(times, 1);
}

INSTANTIATE_TEST_SUITE_P(All, EveryLayout,
                         ::testing::Values("llama-3-70b", "minimax-m3", "deepseek-v3.2", "deepseek-v4-pro",
                                           "qwen3-next", "gpt-oss-20b", "kimi-k3"),
                         [](const auto& name) {
                           std::string out = name.param;
                           std::erase_if(out, [](char c) { return c == '-' || c == '.'; });
                           return out;
                         });

TEST(RankSplit, PagesAreCutWhereTheirPartsLie) {
  std::vector<std::byte> memory(100);
  Page page;
  page.pieces = {{memory.data(), 30}, {memory.data() + 30, 70}};
  RankParts parts;
  parts.whole = false;
  parts.ranges = {{10, 40}, {90, 10}};
  const Page cut = CutTo(page, parts);
  ASSERT_EQ(cut.pieces.size(), 3u);
  EXPECT_EQ(cut.pieces[0].data, memory.data() + 10);
  EXPECT_EQ(cut.pieces[0].bytes, 20u);
  EXPECT_EQ(cut.pieces[1].data, memory.data() + 30);
  EXPECT_EQ(cut.pieces[1].bytes, 20u);
  EXPECT_EQ(cut.pieces[2].data, memory.data() + 90);
  EXPECT_EQ(cut.pieces[2].bytes, 10u);
}

}  // namespace
}  // namespace cistern
