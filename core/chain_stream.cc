#include "core/chain_stream.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace cistern {

ChainStream::ChainStream(const ChainRoot& root, uint32_t block_tokens)
    : ChainStream(root, block_tokens, {}) {}

ChainStream::ChainStream(const ChainRoot& root, uint32_t block_tokens, absl::Span<const BlockKey> known)
    : hasher_(root), block_tokens_(block_tokens), keys_(known.begin(), known.end()) {
  CISTERN_CHECK(block_tokens > 0);
  if (!keys_.empty()) hasher_.ResumeAfter(keys_.back().hash);
  open_.reserve(block_tokens);
}

void ChainStream::Close() {
  keys_.push_back(hasher_.Append(open_, extras_));
  open_.clear();
  extras_.clear();
}

void ChainStream::Append(absl::Span<const uint32_t> tokens) {
  while (!tokens.empty()) {
    const size_t room = std::min(tokens.size(), block_tokens_ - open_.size());
    open_.insert(open_.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(room));
    if (open_.size() == block_tokens_) Close();
    tokens.remove_prefix(room);
  }
}

absl::Status ChainStream::AddExtra(Extra extra) {
  extra.offset = extra.kind == Extra::Kind::kContent ? static_cast<uint32_t>(open_.size()) : 0;
  extras_.push_back(std::move(extra));
  absl::Status status = ValidateExtras(extras_, block_tokens_);
  if (!status.ok()) extras_.pop_back();
  return status;
}

}  // namespace cistern
