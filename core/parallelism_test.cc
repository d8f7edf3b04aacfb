#include "core/parallelism.h"

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/layout/geometry.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using layout::Family;
using layout::Group;
using layout::Layout;
using layout::Plane;
using layout::Segment;
using layout::Shard;
using ::testing::HasSubstr;

Plane HeadPlane(const char* name, const char* dtype, uint32_t heads, uint32_t elements) {
  Plane plane;
  plane.name = name;
  plane.dtype = dtype;
  plane.heads = heads;
  plane.elements = elements;
  plane.shard = Shard::kHead;
  return plane;
}
std::vector<uint32_t> Layers(uint32_t first, uint32_t end) {
  std::vector<uint32_t> out;
  for (uint32_t i = first; i < end; ++i) out.push_back(i);
  return out;
}

// Head counts, slices and segments of the real models; few layers and short rows, so that a test is quick.
Layout LlamaLike() {  // 8 KV heads in 8 slices.
  Layout l;
  l.unit_tokens = l.align_tokens = l.block_tokens = 8;
  Group g{.name = "kv", .slices = 8, .span_ends = {4, 8}};
  g.segments = {Segment{.name = "kv",
                        .layers = Layers(0, 8),
                        .planes = {HeadPlane("k", "bf16", 8, 16), HeadPlane("v", "bf16", 8, 16)}}};
  l.groups = {g};
  return l;
}
Layout M3Like() {  // 4 KV heads in 4 slices, and one index key that all ranks have.
  Layout l;
  l.unit_tokens = l.align_tokens = l.block_tokens = 8;
  Group kv{.name = "kv", .slices = 4};
  kv.segments = {Segment{.name = "kv",
                         .layers = Layers(0, 6),
                         .planes = {HeadPlane("k", "bf16", 4, 16), HeadPlane("v", "bf16", 4, 16)}}};
  Group index{.name = "index", .replicated = true};
  Plane key = HeadPlane("key", "bf16", 1, 16);
  key.shard = Shard::kNone;
  index.segments = {Segment{.name = "key", .layers = Layers(3, 6), .planes = {key}}};
  l.groups = {kv, index};
  return l;
}
Layout Qwen3NextLike() {  // 2 KV heads; a state in 8 slices whose conv is three runs.
  Layout l;
  l.unit_tokens = l.align_tokens = l.block_tokens = 4;
  Group full{.name = "full", .slices = 2};
  full.segments = {Segment{.name = "kv",
                           .layers = {3, 7},
                           .planes = {HeadPlane("k", "bf16", 2, 16), HeadPlane("v", "bf16", 2, 16)}}};
  Group state{.name = "state", .family = Family::kTailState, .slices = 8};
  const std::vector<uint32_t> layers = {0, 1, 2, 4, 5, 6};
  state.segments = {
      Segment{.name = "recurrent",
              .layers = layers,
              .tokens_per_row = 0,
              .planes = {HeadPlane("state", "fp32", 32, 12)}},
      Segment{
          .name = "conv_q", .layers = layers, .tokens_per_row = 0, .planes = {HeadPlane("q", "bf16", 16, 6)}},
      Segment{
          .name = "conv_k", .layers = layers, .tokens_per_row = 0, .planes = {HeadPlane("k", "bf16", 16, 6)}},
      Segment{.name = "conv_v",
              .layers = layers,
              .tokens_per_row = 0,
              .planes = {HeadPlane("v", "bf16", 32, 6)}}};
  l.groups = {full, state};
  return l;
}

using Bytes = std::vector<uint8_t>;
// What an engine without parallelism would have: any byte of the model, by its name.
uint8_t Truth(uint32_t group, uint32_t layer, uint32_t segment, uint32_t plane, uint32_t head, uint64_t row,
              uint64_t byte) {
  uint64_t x = group;
  for (const uint64_t part :
       {uint64_t{layer}, uint64_t{segment}, uint64_t{plane}, uint64_t{head}, row, byte}) {
    x = (x ^ (part + 0x9e37)) * 0x9e3779b97f4a7c15;
    x ^= x >> 29;
  }
  return static_cast<uint8_t>(x);
}

// An engine rank's own memory of one block (or state), as engines keep it: for each layer, segment and plane
// one tensor [row][its heads][bytes of a head's row]. Its heads are `count` from `first`.
using Tensors = std::map<std::vector<uint32_t>, Bytes>;  // (group, layer, segment, plane)

void HeadsOf(const Group& group, const Plane& plane, const GroupShare& share, uint32_t& first,
             uint32_t& count) {
  if (plane.shard == Shard::kNone || group.replicated) {
    first = 0;
    count = plane.heads;
    return;
  }
  const uint32_t per_slice = plane.heads / group.slices;
  first = share.slice_first * per_slice;
  count = share.slice_count * per_slice;
}

// Visits every (layer, segment, plane, head in slice, row) of every part that a rank has, with the place in
// the part and in the rank's tensor.
template <typename Visit>
void Walk(const Layout& l, const std::vector<GroupShare>& shares, Visit visit) {
  for (uint32_t g = 0; g < l.groups.size(); ++g) {
    const Group& group = l.groups[g];
    const GroupShare& share = shares[g];
    for (uint32_t slice = share.slice_first; slice < uint32_t{share.slice_first} + share.slice_count;
         ++slice) {
      for (uint32_t span = share.span_first; span < uint32_t{share.span_first} + share.span_count; ++span) {
        for (const uint32_t layer : layout::LayersOf(group, span)) {
          for (uint32_t s = 0; s < group.segments.size(); ++s) {
            const Segment& segment = group.segments[s];
            if (std::find(segment.layers.begin(), segment.layers.end(), layer) == segment.layers.end())
              continue;
            for (uint32_t p = 0; p < segment.planes.size(); ++p) {
              const Plane& plane = segment.planes[p];
              const uint32_t heads = plane.shard == Shard::kNone ? plane.heads : plane.heads / group.slices;
              for (uint32_t head = 0; head < heads; ++head) {
                for (uint64_t row = 0; row < layout::PartRows(l, group, segment, 0); ++row) {
                  const PartCoord coord{static_cast<uint8_t>(g), static_cast<uint16_t>(slice),
                                        static_cast<uint16_t>(span)};
                  const layout::RowPlace place{
                      .layer = layer, .segment = s, .head = head, .plane = p, .row = row};
                  const auto at = layout::RowOffset(l, group, span, place, 0);
                  ASSERT_TRUE(at.has_value());
                  uint32_t first = 0, count = 0;
                  HeadsOf(group, plane, share, first, count);
                  const uint32_t global = plane.shard == Shard::kNone ? head : slice * heads + head;
                  const uint64_t bytes = layout::RowBytes(plane);
                  visit(coord, *at, std::vector<uint32_t>{g, layer, s, p},
                        (row * count + global - first) * bytes, bytes, global, row);
                }
              }
            }
          }
        }
      }
    }
  }
}

// The reference: a rank's tensors cut straight from the truth.
Tensors Cut(const Layout& l, const std::vector<GroupShare>& shares) {
  Tensors out;
  for (uint32_t g = 0; g < l.groups.size(); ++g) {
    const Group& group = l.groups[g];
    for (uint32_t span = shares[g].span_first; span < uint32_t{shares[g].span_first} + shares[g].span_count;
         ++span) {
      for (const uint32_t layer : layout::LayersOf(group, span)) {
        for (uint32_t s = 0; s < group.segments.size(); ++s) {
          const Segment& segment = group.segments[s];
          if (std::find(segment.layers.begin(), segment.layers.end(), layer) == segment.layers.end())
            continue;
          for (uint32_t p = 0; p < segment.planes.size(); ++p) {
            uint32_t first = 0, count = 0;
            HeadsOf(group, segment.planes[p], shares[g], first, count);
            Bytes& tensor = out[{g, layer, s, p}];
            const uint64_t rows = segment.tokens_per_row == 0 ? 1 : l.block_tokens / segment.tokens_per_row;
            for (uint64_t row = 0; row < rows; ++row) {
              for (uint32_t head = first; head < first + count; ++head) {
                for (uint64_t b = 0; b < layout::RowBytes(segment.planes[p]); ++b) {
                  tensor.push_back(Truth(g, layer, s, p, head, row, b));
                }
              }
            }
          }
        }
      }
    }
  }
  return out;
}

using Store = std::map<uint32_t, Bytes>;  // By packed coordinate: one block, and one tail.

void Write(const Layout& l, const Parallelism& who, Store& store) {
  const auto shares = ShareOf(l, who);
  ASSERT_TRUE(shares.ok()) << shares.status();
  const Tensors mine = Cut(l, *shares);
  Walk(l, *shares,
       [&](PartCoord coord, uint64_t at, const std::vector<uint32_t>& tensor, uint64_t from, uint64_t bytes,
           uint32_t, uint64_t) {
         if (!IsWriter((*shares)[coord.group], BlockHash{})) return;
         Bytes& part = store[coord.Packed()];
         part.resize(layout::PartBytes(l, l.groups[coord.group], coord.span, 0));
         std::memcpy(part.data() + at, mine.at(tensor).data() + from, bytes);
       });
}

void ReadAndCompare(const Layout& l, const Parallelism& who, const Store& store) {
  const auto shares = ShareOf(l, who);
  ASSERT_TRUE(shares.ok()) << shares.status();
  const Tensors want = Cut(l, *shares);
  Tensors got;
  for (const auto& [name, bytes] : want) got[name] = Bytes(bytes.size(), 0xdb);
  Walk(l, *shares,
       [&](PartCoord coord, uint64_t at, const std::vector<uint32_t>& tensor, uint64_t to, uint64_t bytes,
           uint32_t, uint64_t) {
         const auto part = store.find(coord.Packed());
         ASSERT_NE(part, store.end())
             << "group " << int{coord.group} << " slice " << coord.slice << " span " << coord.span;
         std::memcpy(got.at(tensor).data() + to, part->second.data() + at, bytes);
       });
  EXPECT_EQ(got, want);
}

TEST(Parallelism, WhatFourRanksWriteOneTwoAndEightRead) {
  for (const Layout& l : {LlamaLike(), M3Like(), Qwen3NextLike()}) {
    ASSERT_TRUE(layout::Validate(l).ok()) << layout::Validate(l);
    Store store;
    for (uint32_t rank = 0; rank < 4; ++rank) Write(l, {.tp = 4, .tp_rank = rank}, store);
    size_t parts =
        HistoryParts(l, WholeShare(l)).coords.size() + TailParts(l, WholeShare(l), 64).coords.size();
    EXPECT_EQ(store.size(), parts) << "every part was written, each by one rank";
    for (const uint32_t tp : {1, 2, 8}) {
      for (uint32_t rank = 0; rank < tp; ++rank) ReadAndCompare(l, {.tp = tp, .tp_rank = rank}, store);
    }
  }
}

TEST(Parallelism, WhatTwoStagesWriteOneReads) {
  const Layout l = LlamaLike();
  Store store;
  Write(l, {.layer_first = 0, .layer_end = 4}, store);
  Write(l, {.layer_first = 4, .layer_end = 8}, store);
  ReadAndCompare(l, {}, store);
  ReadAndCompare(l, {.tp = 2, .tp_rank = 1, .layer_first = 4, .layer_end = 8}, store);
}

TEST(Parallelism, F07_StagesAndRanksNeverShareACoordinate) {
  const Layout l = LlamaLike();
  std::map<uint32_t, int> seen;
  for (const uint32_t stage : {0u, 4u}) {
    for (uint32_t rank = 0; rank < 8; ++rank) {
      const auto shares =
          ShareOf(l, {.tp = 8, .tp_rank = rank, .layer_first = stage, .layer_end = stage + 4});
      ASSERT_TRUE(shares.ok());
      for (const PartCoord& coord : HistoryParts(l, *shares).coords) ++seen[coord.Packed()];
    }
  }
  EXPECT_EQ(seen.size(), 16u);
  for (const auto& [coord, count] : seen) EXPECT_EQ(count, 1) << coord;
}

TEST(Parallelism, RanksThatDoNotFitAreRefusedByName) {
  const auto why = [](const Layout& l, const Parallelism& who) {
    return std::string(ShareOf(l, who).status().message());
  };
  EXPECT_THAT(why(LlamaLike(), {.dcp = 2}), HasSubstr("PARALLELISM: DCP 2"));
  EXPECT_THAT(why(LlamaLike(), {.pcp = 4}), HasSubstr("PARALLELISM: PCP 4"));
  EXPECT_THAT(why(LlamaLike(), {.tp = 3}), HasSubstr("PARALLELISM: group kv has 8 slices, which TP 3"));
  EXPECT_THAT(why(M3Like(), {.tp = 6}), HasSubstr("PARALLELISM: group kv has 4 slices"));
  EXPECT_THAT(why(LlamaLike(), {.layer_first = 0, .layer_end = 3}),
              HasSubstr("PARALLELISM: the stage [0, 3) cuts span 0 of group kv"));
  EXPECT_THAT(why(LlamaLike(), {.tp = 2, .tp_rank = 2}), HasSubstr("tp: rank 2 of 2"));
  EXPECT_THAT(why(LlamaLike(), {.layer_first = 5, .layer_end = 5}), HasSubstr("layer_first: 5"));
}

TEST(Parallelism, OfRanksWithTheSameBytesOneWritesAndOneOnEachHostPulls) {
  const Layout l = M3Like();
  Random random(3);
  std::vector<int> writes(8), pulls(8);
  for (int i = 0; i < 4000; ++i) {
    BlockHash block;
    StoreLe<uint64_t>(block.bytes.data(), random.Next());
    int writers = 0, pullers = 0;
    for (uint32_t rank = 0; rank < 8; ++rank) {
      const auto shares = ShareOf(l, {.tp = 8, .tp_rank = rank});
      const bool writes_index = IsWriter((*shares)[1], block);
      writers += writes_index;
      writes[rank] += writes_index;
      const bool pulls_index = IsPuller(block, rank % 4, 4);  // Two hosts of four ranks.
      pullers += pulls_index;
      pulls[rank] += pulls_index;
    }
    ASSERT_EQ(writers, 1);
    ASSERT_EQ(pullers, 2);
  }
  for (uint32_t rank = 0; rank < 8; ++rank) {
    EXPECT_NEAR(writes[rank], 500, 120);
    EXPECT_NEAR(pulls[rank], 1000, 160);
  }
}

TEST(Parallelism, PartsAboveFourMiBAreSplit) {
  Layout l = LlamaLike();
  Group big{.name = "state", .family = Family::kTailState};
  Plane plane = HeadPlane("state", "fp32", 1, (9u << 20) / 4 + 25);
  plane.shard = Shard::kNone;
  big.segments = {Segment{.name = "state", .layers = {0}, .tokens_per_row = 0, .planes = {plane}}};
  l.groups.push_back(big);
  const StoredParts parts = TailParts(l, WholeShare(l), 64);
  ASSERT_EQ(parts.coords.size(), 3u);
  EXPECT_THAT(parts.bytes, testing::ElementsAre(4u << 20, 4u << 20, (1u << 20) + 100));
  EXPECT_EQ(parts.coords[2].span, 2u << kChunkShift);
  EXPECT_EQ(parts.TotalBytes(), (9u << 20) + 100);
  EXPECT_EQ(TailParts(l, WholeShare(l), 64, 16).coords.size(), 1u);
}

}  // namespace
}  // namespace cistern
