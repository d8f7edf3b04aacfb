#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/chain.h"
#include "core/ids.h"

namespace cistern {

// The chain of a conversation that grows: tokens come one by one or in turns, and only what is new is hashed.
// Keys of whole blocks stay as they are; the last, part-filled block waits for its tokens. Owner: the caller;
// one thread.
class ChainStream {
 public:
  // block_tokens: not 0.
  ChainStream(const ChainRoot& root, uint32_t block_tokens);
  // Goes on behind blocks whose keys are known (a chain from elsewhere).
  ChainStream(const ChainRoot& root, uint32_t block_tokens, absl::Span<const BlockKey> known);

  void Append(uint32_t token) {
    open_.push_back(token);
    if (open_.size() == block_tokens_) Close();
  }
  void Append(absl::Span<const uint32_t> tokens);
  // An extra of the block that is open now, at its next token where its kind has an offset. InvalidArgument
  // names the limit (ValidateExtras); nothing is added then.
  absl::Status AddExtra(Extra extra);

  uint64_t tokens() const { return keys_.size() * uint64_t{block_tokens_} + open_.size(); }
  absl::Span<const BlockKey> keys() const { return keys_; }
  uint32_t block_tokens() const { return block_tokens_; }

 private:
  void Close();

  ChainHasher hasher_;
  const uint32_t block_tokens_;
  std::vector<BlockKey> keys_;
  std::vector<uint32_t> open_;  // Tokens of the block that is not full yet.
  std::vector<Extra> extras_;   // Its extras.
};

}  // namespace cistern
