#include "tests/sim/sim_chains.h"

#include <algorithm>
#include <cstring>

#include "core/chain.h"
#include "core/check.h"

namespace cistern {
namespace {

constexpr size_t kTrunks = 5;
constexpr uint32_t kTrunkBlocks = 20;
constexpr size_t kChains = 24;
constexpr uint32_t kBranchBlocksMax = 16;
constexpr uint32_t kBlockTokens = kSimBlockTokens;

layout::Plane Values(const char* name, const char* dtype, uint32_t heads, uint32_t elements) {
  layout::Plane plane;
  plane.name = name;
  plane.dtype = dtype;
  plane.heads = heads;
  plane.elements = elements;
  plane.shard = heads == 1 ? layout::Shard::kNone : layout::Shard::kHead;
  return plane;
}

layout::Group GroupOf(const char* name, layout::Family family, uint16_t slices, uint32_t tokens_per_row,
                      const layout::Plane& plane) {
  layout::Segment segment;
  segment.name = name;
  segment.layers = {0, 1};
  segment.tokens_per_row = tokens_per_row;
  segment.planes = {plane};
  layout::Group group;
  group.name = name;
  group.family = family;
  group.slices = slices;
  group.segments = {segment};
  return group;
}

// Two histories of different sizes, a window, and a state in two slices. All parts take slots of one size,
// that of the sliced layout: small arenas hold few sizes at a time.
layout::Layout WithTails() {
  using layout::Family;
  layout::Layout out;
  out.model = "tails";
  out.unit_tokens = out.block_tokens = kBlockTokens;
  out.align_tokens = kBlockTokens * kSimAlignBlocks;
  out.groups = {GroupOf("kv", Family::kHistory, 2, 1, Values("kv", "bf16", 2, 563)),
                GroupOf("index", Family::kHistory, 1, 1, Values("key", "bf16", 1, 561)),
                GroupOf("window", Family::kTailWindow, 1, 1, Values("raw", "bf16", 1, 281)),
                GroupOf("state", Family::kTailState, 2, 0, Values("state", "fp32", 2, 1126))};
  out.groups[1].replicated = true;
  out.groups[2].window_tokens = 9;
  out.groups[2].replicated = true;
  return out;
}

uint64_t Seed(const BlockKey& block, PartCoord coord) {
  return (block.hash.Prefix64() ^ block.fingerprint * 0x9e3779b97f4a7c15 ^
          coord.Packed() * 0xc2b2ae3d27d4eb4f) |
         1;
}
uint64_t Word(uint64_t seed, uint64_t index) { return seed * (2 * index + 1) + index; }

}  // namespace

void FillPart(const BlockKey& block, PartCoord coord, std::byte* out, size_t bytes) {
  const uint64_t seed = Seed(block, coord);
  for (size_t i = 0; i * 8 < bytes; ++i) {
    const uint64_t word = Word(seed, i);
    std::memcpy(out + i * 8, &word, std::min<size_t>(8, bytes - i * 8));
  }
}

bool IsPart(const BlockKey& block, PartCoord coord, const std::byte* data, size_t bytes) {
  const uint64_t seed = Seed(block, coord);
  uint64_t wrong = 0;
  for (size_t i = 0; i * 8 < bytes; ++i) {
    uint64_t expected = Word(seed, i), found = expected;
    std::memcpy(&found, data + i * 8, std::min<size_t>(8, bytes - i * 8));
    wrong |= expected ^ found;
  }
  return wrong == 0;
}

SimChains::SimChains(const std::array<uint8_t, 32>& namespace_secret, Random& random)
    : secret_(namespace_secret) {
  LayoutSpec whole;
  whole.model = "whole";
  whole.block_tokens = kBlockTokens;
  whole.part_bytes = 40'000 + 8 * static_cast<uint32_t>(random.Below(3000));
  LayoutSpec sliced = whole;
  sliced.model = "sliced";
  sliced.part_bytes = 9'000;
  sliced.slices = 2;
  sliced.spans = 2;
  for (const LayoutSpec& spec : {whole, sliced}) {
    CISTERN_CHECK(ValidateLayout(spec).ok());
    const std::vector<PartCoord> coords = AllCoords(spec);
    layouts_.push_back(
        {ComputeLayoutId(spec), {coords, std::vector<uint32_t>(coords.size(), spec.part_bytes)}, nullptr});
  }
  CISTERN_CHECK(layout::Validate(WithTails()).ok());
  const std::shared_ptr<const GroupLayout> tails = MakeGroupLayout(WithTails());
  layouts_.push_back({tails->id, tails->sets.front().parts, tails});
  std::vector<std::vector<uint32_t>> trunks(kTrunks);
  for (std::vector<uint32_t>& trunk : trunks) {
    for (uint32_t i = 0; i < kTrunkBlocks * kBlockTokens; ++i)
      trunk.push_back(static_cast<uint32_t>(random.Next()));
  }
  for (size_t i = 0; i < kChains; ++i) {
    const std::vector<uint32_t>& trunk = trunks[random.Below(kTrunks)];
    std::vector<uint32_t> tokens(trunk.begin(),
                                 trunk.begin() + (1 + random.Below(kTrunkBlocks)) * kBlockTokens);
    const uint64_t branch = random.Below(kBranchBlocksMax + 1);
    for (uint64_t k = 0; k < branch * kBlockTokens; ++k)
      tokens.push_back(static_cast<uint32_t>(random.Next()));
    auto chain = std::make_unique<SimChain>();
    chain->layout = random.Chance(0.3) ? 2 : random.Chance(0.7) ? 0 : 1;
    chain->blocks = Hash(chain->layout, tokens);
    chains_.push_back(std::move(chain));
  }
}

std::vector<BlockKey> SimChains::Hash(size_t layout, const std::vector<uint32_t>& tokens) const {
  ChainRoot root;
  root.layout = layouts_[layout].id;
  root.namespace_secret = secret_;
  ChainHasher hasher(root);
  std::vector<BlockKey> blocks;
  hasher.AppendAll(tokens, kBlockTokens, blocks);
  return blocks;
}

const SimChain& SimChains::Fresh(size_t layout, Random& random) {
  std::vector<uint32_t> tokens(12 * kBlockTokens);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random.Next());
  auto chain = std::make_unique<SimChain>();
  chain->layout = layout;
  chain->blocks = Hash(layout, tokens);
  chains_.push_back(std::move(chain));
  return *chains_.back();
}

void SimChains::MarkVisible(const SimChain& chain, uint32_t first, uint32_t count) {
  for (const std::unique_ptr<SimChain>& other : chains_) {
    if (other->layout != chain.layout || other->visible < first) continue;
    uint32_t shared = other->visible;
    const uint32_t end = std::min<uint32_t>(first + count, static_cast<uint32_t>(other->blocks.size()));
    while (shared < end && other->blocks[shared] == chain.blocks[shared]) ++shared;
    other->visible = shared;
  }
}

void SimChains::MarkTail(const SimChain& chain, uint32_t blocks) {
  for (const std::unique_ptr<SimChain>& other : chains_) {
    if (other->layout != chain.layout || other->blocks.size() < blocks) continue;
    if (other->blocks[blocks - 1] == chain.blocks[blocks - 1]) other->tails.push_back(blocks);
  }
}

uint32_t SimChain::TailVisible() const {
  uint32_t deepest = 0;
  for (const uint32_t boundary : tails) {
    if (boundary <= visible) deepest = std::max(deepest, boundary);
  }
  return deepest;
}

}  // namespace cistern
