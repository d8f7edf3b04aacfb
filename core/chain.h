#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/ids.h"

namespace cistern {

// What seeds a chain: everything besides tokens that makes KV bytes differ (DESIGN §3).
struct ChainRoot {
  LayoutId layout;
  std::array<uint8_t, 32> namespace_secret{};
  std::array<uint8_t, 32> compute_digest{};  // Model config, tensor digests, quantisation, dtypes.
  uint64_t weights_epoch = 0;
};

// One extra of a block, typed and full width.
struct Extra {
  enum class Kind : uint8_t { kLora = 1, kContent = 2, kPromptEmbedding = 3, kSalt = 4 };
  Kind kind = Kind::kSalt;
  uint32_t offset = 0;  // Token offset in the block (kContent only).
  std::string value;    // Any bytes, any length <= kExtraBytesMax.
};
inline constexpr size_t kExtraBytesMax = 4096;
inline constexpr size_t kExtrasPerBlockMax = 64;
// InvalidArgument naming the limit: too many, too long, an unknown kind, an offset outside the block or on
// another kind than kContent. Append takes anything; whoever gets extras from outside asks here first.
absl::Status ValidateExtras(absl::Span<const Extra> extras, uint32_t block_tokens);

// The algorithm's name, announced in HELLO; peers with another are refused.
inline constexpr char kKeyAlgorithm[] = "sha256-frame/1+xxh3";

// Hashes one chain, block by block. Holds the digest context: no allocation per block. One thread.
//   H(root) = SHA-256(frame("cistern/1", layout, secret, digest, weights_epoch))
//   H(i)    = SHA-256(frame(H(i-1), tokens_i, extras_i)); tokens as little-endian uint32.
// fingerprint(i) = XXH3-64(frame(tokens_i, extras_i)), seeded with nothing of H: independent of the chain's
// hash.
class ChainHasher {
 public:
  explicit ChainHasher(const ChainRoot& root);
  ~ChainHasher();
  ChainHasher(const ChainHasher&) = delete;
  ChainHasher& operator=(const ChainHasher&) = delete;

  // Back to the root: the next Append is block 0.
  void Reset();
  // Continues after a block whose hash is known (session caches).
  void ResumeAfter(const BlockHash& previous);
  // tokens: exactly one block. extras: sorted by the caller; order matters.
  BlockKey Append(absl::Span<const uint32_t> tokens, absl::Span<const Extra> extras = {});
  // Appends the keys of whole blocks of `tokens` to `out` (which is not cleared); a part-filled last block is
  // left out.
  void AppendAll(absl::Span<const uint32_t> tokens, uint32_t block_tokens, std::vector<BlockKey>& out);
  const BlockHash& root() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Test hook for F01: every later block digest in this process is this constant; the fingerprint stays true.
void SetConstantBlockHashForTest(bool on);

}  // namespace cistern
