#include "client/chain.h"

#include <algorithm>
#include <string>

#include "client/convert.h"
#include "core/group_layout.h"

namespace cistern {

LayoutSpec ToSpec(const Layout& layout) {
  LayoutSpec spec;
  spec.model = layout.model;
  spec.block_tokens = layout.block_tokens;
  spec.part_bytes = layout.part_bytes;
  spec.slices = layout.slices;
  spec.spans = layout.spans;
  spec.dtype = layout.dtype;
  spec.geometry = layout.geometry;
  return spec;
}

namespace {

// Extras of each block in the caller's order, which is part of the key.
Status SortExtras(std::span<const ChainExtra> extras, uint32_t first_block, uint32_t end_block,
                  uint32_t block_tokens, std::vector<std::pair<uint32_t, Extra>>& out) {
  for (size_t i = 0; i < extras.size(); ++i) {
    const ChainExtra& extra = extras[i];
    const std::string name = "extras[" + std::to_string(i) + "]";
    if (extra.value.size() > kExtraBytesMax)
      return {Code::kInvalidArgument, name + ".value: above 4096 bytes"};
    if (extra.kind < ChainExtra::Kind::kLora || extra.kind > ChainExtra::Kind::kSalt) {
      return {Code::kInvalidArgument, name + ".kind: unknown"};
    }
    if (extra.offset >= block_tokens) return {Code::kInvalidArgument, name + ".offset: outside of the block"};
    if (extra.block < first_block)
      return {Code::kInvalidArgument, name + ".block: in the prefix, which is hashed already"};
    if (extra.block >= end_block)
      continue;  // Of a part-filled last block, which is left out like its tokens.
    out.emplace_back(extra.block, Extra{static_cast<Extra::Kind>(extra.kind), extra.offset, extra.value});
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return {};
}

}  // namespace

Result<Chain> HashChain(const Layout& layout, const Chain::Rep* prefix, std::span<const uint32_t> tokens,
                        std::span<const ChainExtra> extras, const std::array<uint8_t, 32>& secret,
                        uint64_t weights_epoch) {
  auto rep = std::make_shared<Chain::Rep>();
  if (prefix != nullptr) {
    *rep = *prefix;
  } else {
    rep->layout = layout;
    if (layout.groups != nullptr) {
      rep->spec.block_tokens = layout.groups->layout.block_tokens;
      rep->layout_id = layout.groups->id;
    } else {
      rep->spec = ToSpec(layout);
      if (const absl::Status status = ValidateLayout(rep->spec); !status.ok()) return ToPublic(status);
      rep->layout_id = ComputeLayoutId(rep->spec);
    }
    rep->root = {rep->layout_id, secret, layout.compute_digest, weights_epoch};
  }
  const uint32_t block_tokens = rep->spec.block_tokens;
  const auto first = static_cast<uint32_t>(rep->keys.size());
  if (tokens.size() / block_tokens > UINT32_MAX / 2 - first)
    return Status(Code::kInvalidArgument, "tokens: too many");
  const auto blocks = static_cast<uint32_t>(tokens.size() / block_tokens);
  std::vector<std::pair<uint32_t, Extra>> sorted;
  if (const Status status = SortExtras(extras, first, first + blocks, block_tokens, sorted); !status.ok())
    return status;

  ChainHasher hasher(rep->root);
  if (first > 0) hasher.ResumeAfter(rep->keys.back().hash);
  if (sorted.empty()) {
    hasher.AppendAll(absl::MakeConstSpan(tokens.data(), tokens.size()), block_tokens, rep->keys);
    return Chain(std::shared_ptr<const Chain::Rep>(std::move(rep)));
  }
  rep->keys.reserve(first + blocks);
  std::vector<Extra> of_block;
  size_t next = 0;
  for (uint32_t i = 0; i < blocks; ++i) {
    of_block.clear();
    for (; next < sorted.size() && sorted[next].first == first + i; ++next)
      of_block.push_back(std::move(sorted[next].second));
    if (of_block.size() > kExtrasPerBlockMax) {
      return Status(Code::kInvalidArgument, "extras: above 64 for block " + std::to_string(first + i));
    }
    rep->keys.push_back(
        hasher.Append(absl::MakeConstSpan(tokens.data() + size_t{i} * block_tokens, block_tokens), of_block));
  }
  return Chain(std::shared_ptr<const Chain::Rep>(std::move(rep)));
}

uint32_t Chain::blocks() const { return rep_ == nullptr ? 0 : static_cast<uint32_t>(rep_->keys.size()); }

const Layout& Chain::layout() const {
  static const Layout kNone;
  return rep_ == nullptr ? kNone : rep_->layout;
}

std::array<uint8_t, 32> Chain::hash(uint32_t block) const {
  return block < blocks() ? rep_->keys[block].hash.bytes : std::array<uint8_t, 32>{};
}

uint64_t Chain::fingerprint(uint32_t block) const {
  return block < blocks() ? rep_->keys[block].fingerprint : 0;
}

}  // namespace cistern
