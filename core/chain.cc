#include "core/chain.h"

// docs/adr/0018: what EVP adds to each digest is more than half of a block of 16 tokens.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#include <xxh_x86dispatch.h>
#endif
#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "core/bytes.h"
#include "core/check.h"

namespace cistern {
namespace {

// Field tags. A frame is a list of fields, each `tag (1) length (4, little-endian) bytes`, so a frame can be
// read back in one way only and no two field lists give the same bytes. Never renumber.
enum class Tag : uint8_t {
  kDomain = 1,
  kLayout = 2,
  kNamespaceSecret = 3,
  kComputeDigest = 4,
  kWeightsEpoch = 5,
  kPrevious = 6,
  kTokens = 7,
  kExtraBase = 16,  // + Extra::Kind; the value is the offset (4) and the extra's bytes.
};
constexpr char kDomain[] = "cistern/1";
constexpr size_t kFieldHeadBytes = 5;
constexpr size_t kDigestBytes = 32;
constexpr size_t kCacheLineBytes = 64;
// Where a block's fields begin: the previous hash first, so what the fingerprint covers is one range behind
// it.
constexpr size_t kPreviousAt = kFieldHeadBytes;
constexpr size_t kContentAt = kPreviousAt + kDigestBytes;
// DESIGN §3: a plain 16-token block takes two SHA-256 compressions, with 9 bytes of SHA-256's own padding.
static_assert(kContentAt + kFieldHeadBytes + 16 * sizeof(uint32_t) + 9 <= 128);

std::atomic<bool> constant_hash_for_test{false};

uint8_t* PutHead(uint8_t* at, Tag tag, size_t bytes) {
  *at = static_cast<uint8_t>(tag);
  StoreLe<uint32_t>(at + 1, static_cast<uint32_t>(bytes));
  return at + kFieldHeadBytes;
}

uint8_t* PutBytes(uint8_t* at, const void* data, size_t bytes) {
  if (bytes > 0) std::memcpy(at, data, bytes);
  return at + bytes;
}

uint8_t* PutField(uint8_t* at, Tag tag, const void* data, size_t bytes) {
  return PutBytes(PutHead(at, tag, bytes), data, bytes);
}

size_t ExtrasBytes(absl::Span<const Extra> extras) {
  size_t bytes = 0;
  for (const Extra& extra : extras) bytes += kFieldHeadBytes + sizeof(uint32_t) + extra.value.size();
  return bytes;
}

uint8_t* PutExtra(uint8_t* at, const Extra& extra) {
  const auto tag = static_cast<Tag>(static_cast<uint8_t>(Tag::kExtraBase) + static_cast<uint8_t>(extra.kind));
  at = PutHead(at, tag, sizeof(uint32_t) + extra.value.size());
  StoreLe<uint32_t>(at, extra.offset);
  at += sizeof(uint32_t);
  return PutBytes(at, extra.value.data(), extra.value.size());
}

void Digest(const uint8_t* data, size_t bytes, uint8_t* out) {
  SHA256_CTX context;
  CISTERN_CHECK(SHA256_Init(&context) == 1);
  CISTERN_CHECK(SHA256_Update(&context, data, bytes) == 1);
  CISTERN_CHECK(SHA256_Final(out, &context) == 1);
}

#if defined(__x86_64__)
__attribute__((target("avx"))) void ClearUpperHalves() { _mm256_zeroupper(); }
#endif

// The same value with every instruction set; the library takes the widest that the machine has.
uint64_t Fingerprint(const uint8_t* data, size_t bytes) {
#if defined(__x86_64__)
  static const bool has_avx = __builtin_cpu_supports("avx") != 0;
  const uint64_t value = XXH3_64bits_dispatch(data, bytes);
  // Its AVX code leaves the registers' upper halves set, and each SSE instruction of SHA-256 behind it then
  // has them to keep: 120 of 880 ns a block of 256 tokens (Zen 3).
  if (has_avx) ClearUpperHalves();
  return value;
#else
  return XXH3_64bits(data, bytes);
#endif
}

}  // namespace

absl::Status ValidateExtras(absl::Span<const Extra> extras, uint32_t block_tokens) {
  const auto invalid = [](size_t i, const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("extra ", i, ": ", what...));
  };
  if (extras.size() > kExtrasPerBlockMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(extras.size(), " extras in a block, the limit is ", kExtrasPerBlockMax));
  }
  for (size_t i = 0; i < extras.size(); ++i) {
    const Extra& extra = extras[i];
    const auto kind = static_cast<uint8_t>(extra.kind);
    if (kind < static_cast<uint8_t>(Extra::Kind::kLora) || kind > static_cast<uint8_t>(Extra::Kind::kSalt)) {
      return invalid(i, "unknown kind ", kind);
    }
    if (extra.value.size() > kExtraBytesMax) {
      return invalid(i, extra.value.size(), " bytes, the limit is ", kExtraBytesMax);
    }
    const bool has_offset = extra.kind == Extra::Kind::kContent;
    if (has_offset ? extra.offset >= block_tokens : extra.offset != 0) {
      return invalid(i, "offset ", extra.offset,
                     has_offset ? " is outside the block" : " on a kind that has none");
    }
  }
  return absl::OkStatus();
}

struct ChainHasher::Impl {
  BlockHash root;
  std::vector<uint8_t>
      frame;  // Grows to the largest block seen; its previous-hash field is the chain's state.

  uint8_t* previous() { return frame.data() + kPreviousAt; }
};

ChainHasher::ChainHasher(const ChainRoot& root) : impl_(std::make_unique<Impl>()) {
  std::array<uint8_t, 256> buffer;
  uint8_t* at = PutField(buffer.data(), Tag::kDomain, kDomain, sizeof(kDomain) - 1);
  at = PutField(at, Tag::kLayout, root.layout.bytes.data(), root.layout.bytes.size());
  at = PutField(at, Tag::kNamespaceSecret, root.namespace_secret.data(), root.namespace_secret.size());
  at = PutField(at, Tag::kComputeDigest, root.compute_digest.data(), root.compute_digest.size());
  at = PutField(at, Tag::kWeightsEpoch, &root.weights_epoch, sizeof(root.weights_epoch));
  Digest(buffer.data(), static_cast<size_t>(at - buffer.data()), impl_->root.bytes.data());
  impl_->frame.resize(kContentAt);
  PutHead(impl_->frame.data(), Tag::kPrevious, kDigestBytes);
  Reset();
}

ChainHasher::~ChainHasher() = default;

void ChainHasher::Reset() { ResumeAfter(impl_->root); }

void ChainHasher::ResumeAfter(const BlockHash& previous) {
  std::memcpy(impl_->previous(), previous.bytes.data(), kDigestBytes);
}

BlockKey ChainHasher::Append(absl::Span<const uint32_t> tokens, absl::Span<const Extra> extras) {
  const size_t token_bytes = tokens.size() * sizeof(uint32_t);
  const size_t frame_bytes = kContentAt + kFieldHeadBytes + token_bytes + ExtrasBytes(extras);
  if (impl_->frame.size() < frame_bytes) impl_->frame.resize(frame_bytes);
  uint8_t* at = PutField(impl_->frame.data() + kContentAt, Tag::kTokens, tokens.data(), token_bytes);
  for (const Extra& extra : extras) at = PutExtra(at, extra);

  BlockKey key;
  key.fingerprint = Fingerprint(impl_->frame.data() + kContentAt, frame_bytes - kContentAt);
  Digest(impl_->frame.data(), frame_bytes, impl_->previous());
  if (constant_hash_for_test.load(std::memory_order_relaxed)) [[unlikely]] {
    std::memset(impl_->previous(), 0x5a, kDigestBytes);
  }
  std::memcpy(key.hash.bytes.data(), impl_->previous(), kDigestBytes);
  return key;
}

void ChainHasher::AppendAll(absl::Span<const uint32_t> tokens, uint32_t block_tokens,
                            std::vector<BlockKey>& out) {
  CISTERN_CHECK(block_tokens > 0);
  const size_t blocks = tokens.size() / block_tokens;
  if (out.empty()) out.reserve(blocks);
  for (size_t i = 0; i < blocks; ++i) {
    // A prompt of a million tokens is in no cache: the next block comes while this one is hashed.
    const absl::Span<const uint32_t> next = tokens.subspan((i + 1) * block_tokens, block_tokens);
    for (size_t at = 0; at < next.size(); at += kCacheLineBytes / sizeof(uint32_t))
      __builtin_prefetch(&next[at]);
    out.push_back(Append(tokens.subspan(i * block_tokens, block_tokens)));
  }
}

const BlockHash& ChainHasher::root() const { return impl_->root; }

void SetConstantBlockHashForTest(bool on) { constant_hash_for_test.store(on, std::memory_order_relaxed); }

}  // namespace cistern
