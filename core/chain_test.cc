#include "core/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include "core/bytes.h"
#include "core/random.h"

namespace cistern {
namespace {

std::vector<uint32_t> Tokens(uint32_t count, uint32_t first = 0) {
  std::vector<uint32_t> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

ChainRoot SomeRoot(uint8_t secret = 1) {
  ChainRoot root;
  root.layout.bytes.fill(3);
  root.namespace_secret.fill(secret);
  root.compute_digest.fill(2);
  root.weights_epoch = 1;
  return root;
}

// What one key is made of.
struct Input {
  ChainRoot root;
  std::vector<uint32_t> tokens;
  std::vector<Extra> extras;
};

bool Same(const Input& a, const Input& b) {
  const auto same_extra = [](const Extra& x, const Extra& y) {
    return x.kind == y.kind && x.offset == y.offset && x.value == y.value;
  };
  return a.root.layout == b.root.layout && a.root.namespace_secret == b.root.namespace_secret &&
         a.root.compute_digest == b.root.compute_digest && a.root.weights_epoch == b.root.weights_epoch &&
         a.tokens == b.tokens &&
         std::equal(a.extras.begin(), a.extras.end(), b.extras.begin(), b.extras.end(), same_extra);
}

BlockKey KeyOf(const Input& input) { return ChainHasher(input.root).Append(input.tokens, input.extras); }

Extra::Kind RandomKind(Random& random) { return static_cast<Extra::Kind>(1 + random.Below(4)); }

std::string RandomValue(Random& random) {
  // Few letters and short: the same bytes turn up in several fields, as they do when somebody is looking for
  // a clash.
  std::string out(random.Below(6), '\0');
  for (char& c : out) c = static_cast<char>("ab\0\x07\x10"[random.Below(5)]);
  return out;
}

Input RandomInput(Random& random) {
  Input input{.root = SomeRoot(static_cast<uint8_t>(random.Below(4))), .tokens = {}, .extras = {}};
  input.root.compute_digest.fill(static_cast<uint8_t>(random.Below(4)));
  input.root.weights_epoch = random.Below(4);
  for (size_t i = random.Below(9); i > 0; --i) input.tokens.push_back(static_cast<uint32_t>(random.Below(3)));
  for (size_t i = random.Below(4); i > 0; --i) {
    input.extras.push_back({.kind = RandomKind(random),
                            .offset = static_cast<uint32_t>(random.Below(2)),
                            .value = RandomValue(random)});
  }
  return input;
}

std::string Raw(const void* data, size_t bytes) { return std::string(static_cast<const char*>(data), bytes); }

// The bytes that a frame, or a careless version of one, puts between two extras. Kind and offset are those of
// `next`.
std::string SpelledHead(Random& random, const Extra& next) {
  const std::string offset = Raw(&next.offset, sizeof(uint32_t));
  const auto length = static_cast<uint32_t>(sizeof(uint32_t) + next.value.size());
  std::string head;
  const uint64_t form = random.Below(5);
  if (form >= 2) head.push_back(static_cast<char>(16 + static_cast<int>(next.kind)));
  if (form == 3) head.append(sizeof(length), '\0');
  if (form == 4) head.append(Raw(&length, sizeof(length)));
  if (form >= 1) head.append(offset);
  return head;
}

// Moves something over the border between two fields, or makes an absent field empty.
void MoveOverABorder(Random& random, Input& input) {
  std::vector<Extra>& extras = input.extras;
  const size_t at = extras.empty() ? 0 : random.Below(extras.size());
  const auto fresh = [&](std::string value) {
    extras.insert(extras.begin() + static_cast<ptrdiff_t>(at),
                  {.kind = RandomKind(random), .offset = 0, .value = std::move(value)});
  };
  switch (random.Below(9)) {
    case 0:  // The same value under another kind: an adapter named like a salt.
      if (!extras.empty()) extras[at].kind = RandomKind(random);
      break;
    case 1:  // `ab` + `c` -> `a` + `bc`.
      if (at + 1 < extras.size() && !extras[at].value.empty()) {
        extras[at + 1].value.insert(0, 1, extras[at].value.back());
        extras[at].value.pop_back();
      }
      break;
    case 2:  // Empty in place of absent.
      fresh("");
      break;
    case 3:  // Two extras become one, perhaps with what stood between them spelled out.
      if (at + 1 < extras.size()) {
        extras[at].value += SpelledHead(random, extras[at + 1]) + extras[at + 1].value;
        extras.erase(extras.begin() + static_cast<ptrdiff_t>(at) + 1);
      }
      break;
    case 4:  // The last token becomes the bytes of an extra.
      if (!input.tokens.empty()) {
        fresh(Raw(&input.tokens.back(), sizeof(uint32_t)));
        input.tokens.pop_back();
      }
      break;
    case 5:  // An extra's offset becomes part of its value.
      if (!extras.empty()) {
        extras[at].value.insert(0, Raw(&extras[at].offset, sizeof(uint32_t)));
        extras[at].offset = 0;
      }
      break;
    case 6:  // Tenant's secret and compute digest change places.
      std::swap(input.root.namespace_secret, input.root.compute_digest);
      break;
    case 7:  // The tenant moves into a salt.
      fresh(Raw(input.root.namespace_secret.data(), input.root.namespace_secret.size()));
      input.root.namespace_secret.fill(0);
      break;
    default:  // The first extra becomes tokens that spell it.
      if (!extras.empty()) {
        const std::string bytes = SpelledHead(random, extras[0]) + extras[0].value;
        for (size_t i = 0; i + 4 <= bytes.size(); i += 4) input.tokens.push_back(LoadLe<uint32_t>(&bytes[i]));
        extras.erase(extras.begin());
      }
      break;
  }
}

TEST(ChainHash, F02_FieldBordersChangeTheKey) {
  constexpr uint64_t kSeed = 20260302;
  Random random(kSeed);
  int pairs = 0;
  while (pairs < 10'000) {
    const Input a = RandomInput(random);
    Input b = a;
    MoveOverABorder(random, b);
    if (Same(a, b)) continue;
    ++pairs;
    const BlockKey key_a = KeyOf(a), key_b = KeyOf(b);
    ASSERT_NE(key_a.hash, key_b.hash) << "seed " << kSeed << " pair " << pairs;
    // The fingerprint covers what is in the block, not the root.
    if (!Same({.root = a.root, .tokens = b.tokens, .extras = b.extras}, a)) {
      ASSERT_NE(key_a.fingerprint, key_b.fingerprint) << "seed " << kSeed << " pair " << pairs;
    }
  }
}

TEST(ChainHash, F02_ABorderBetweenBlocksChangesTheKey) {
  ChainHasher a(SomeRoot()), b(SomeRoot());
  a.Append(Tokens(4));
  b.Append(Tokens(5));
  EXPECT_NE(a.Append(Tokens(4, 4)).hash, b.Append(Tokens(3, 5)).hash);
}

TEST(ChainHash, F03_DoesNotDependOnTheObjectTheThreadOrTheBlocksBefore) {
  const BlockKey first = ChainHasher(SomeRoot()).Append(Tokens(16));
  ChainHasher used(SomeRoot());
  used.Append(Tokens(300), std::vector<Extra>{{.value = std::string(500, 'x')}});
  used.Reset();
  EXPECT_EQ(used.Append(Tokens(16)), first);
  BlockKey elsewhere;
  std::thread([&] { elsewhere = ChainHasher(SomeRoot()).Append(Tokens(16)); }).join();
  EXPECT_EQ(elsewhere, first);
}

TEST(ChainHash, F03_TokensAreLittleEndianWhateverHoldsThem) {
  // Spelled out byte by byte, against the digest of the frame written by hand.
  const std::array<uint32_t, 2> tokens = {0x04030201, 0x08070605};
  ChainHasher hasher(SomeRoot());
  std::string frame("\x06\x20\0\0\0", 5);
  frame += Raw(hasher.root().bytes.data(), 32);
  frame += std::string("\x07\x08\0\0\0\1\2\3\4\5\6\7\x08", 13);
  BlockHash expected;
  SHA256(reinterpret_cast<const uint8_t*>(frame.data()), frame.size(), expected.bytes.data());
  EXPECT_EQ(hasher.Append(tokens).hash, expected);
}

TEST(ChainHash, S01_KeysAreWholeDigestsSeededByTheSecret) {
  static_assert(sizeof(BlockHash) == 32);
  const BlockKey a = ChainHasher(SomeRoot(1)).Append(Tokens(16));
  const BlockKey b = ChainHasher(SomeRoot(2)).Append(Tokens(16));
  EXPECT_NE(a.hash, b.hash);
  EXPECT_EQ(a.fingerprint, b.fingerprint);  // Not seeded: it tells blocks apart, it hides nothing.
}

TEST(ChainHash, EveryFieldOfTheRootChangesEveryKey) {
  std::set<std::string> seen;
  ChainRoot root = SomeRoot();
  seen.insert(ToHex(ChainHasher(root).Append(Tokens(16)).hash));
  root.layout.bytes[15] ^= 1;
  seen.insert(ToHex(ChainHasher(root).Append(Tokens(16)).hash));
  root.namespace_secret[31] ^= 1;
  seen.insert(ToHex(ChainHasher(root).Append(Tokens(16)).hash));
  root.compute_digest[31] ^= 1;
  seen.insert(ToHex(ChainHasher(root).Append(Tokens(16)).hash));
  root.weights_epoch += uint64_t{1} << 63;
  seen.insert(ToHex(ChainHasher(root).Append(Tokens(16)).hash));
  EXPECT_EQ(seen.size(), 5u);
}

TEST(ChainHash, ABlockIsNamedByEverythingBeforeIt) {
  ChainHasher a(SomeRoot()), b(SomeRoot());
  std::vector<uint32_t> first = Tokens(16);
  a.Append(first);
  first[0] ^= 1;
  b.Append(first);
  const BlockKey key_a = a.Append(Tokens(16)), key_b = b.Append(Tokens(16));
  EXPECT_NE(key_a.hash, key_b.hash);
  EXPECT_EQ(key_a.fingerprint, key_b.fingerprint);
}

TEST(ChainHash, ResumesAfterAKnownBlock) {
  ChainHasher whole(SomeRoot()), resumed(SomeRoot());
  std::vector<BlockKey> keys;
  whole.AppendAll(Tokens(64), 16, keys);
  ASSERT_EQ(keys.size(), 4u);
  resumed.ResumeAfter(keys[1].hash);
  EXPECT_EQ(resumed.Append(Tokens(16, 32)), keys[2]);
  EXPECT_EQ(resumed.Append(Tokens(16, 48)), keys[3]);
  resumed.Reset();
  EXPECT_EQ(resumed.Append(Tokens(16)), keys[0]);
}

TEST(ChainHash, AppendAllLeavesOutAPartFilledBlockAndKeepsWhatWasThere) {
  ChainHasher hasher(SomeRoot());
  std::vector<BlockKey> keys;
  hasher.AppendAll(Tokens(47), 16, keys);
  EXPECT_EQ(keys.size(), 2u);
  hasher.AppendAll(Tokens(16, 32), 16, keys);
  ASSERT_EQ(keys.size(), 3u);
  std::vector<BlockKey> at_once;
  hasher.Reset();
  hasher.AppendAll(Tokens(48), 16, at_once);
  EXPECT_EQ(keys, at_once);
  hasher.AppendAll(Tokens(15), 16, keys);
  hasher.AppendAll({}, 16, keys);
  EXPECT_EQ(keys.size(), 3u);
}

TEST(ChainHash, ValidateExtrasNamesTheLimit) {
  EXPECT_TRUE(ValidateExtras({}, 16).ok());
  std::vector<Extra> extras = {
      {.kind = Extra::Kind::kContent, .offset = 15, .value = std::string(kExtraBytesMax, 'x')}};
  EXPECT_TRUE(ValidateExtras(extras, 16).ok());
  EXPECT_THAT(ValidateExtras(extras, 15).message(), ::testing::HasSubstr("offset"));
  extras[0].offset = 0;
  extras[0].value += 'x';
  EXPECT_THAT(ValidateExtras(extras, 16).message(), ::testing::HasSubstr("4097 bytes"));
  extras.assign(1, {.kind = Extra::Kind::kSalt, .offset = 1, .value = "s"});
  EXPECT_THAT(ValidateExtras(extras, 16).message(), ::testing::HasSubstr("offset"));
  extras.assign(1, {.kind = static_cast<Extra::Kind>(5), .offset = 0, .value = "s"});
  EXPECT_THAT(ValidateExtras(extras, 16).message(), ::testing::HasSubstr("kind"));
  extras.assign(kExtrasPerBlockMax + 1, {.value = "s"});
  EXPECT_EQ(ValidateExtras(extras, 16).code(), absl::StatusCode::kInvalidArgument);
}

// The hook behind F01: hashes collide on purpose, and the fingerprint still tells the blocks apart.
TEST(ChainHash, F01_TheFingerprintDiffersWhereHashesAreForcedEqual) {
  SetConstantBlockHashForTest(true);
  ChainHasher hasher(SomeRoot());
  const BlockKey a = hasher.Append(Tokens(16)), b = hasher.Append(Tokens(16, 16));
  SetConstantBlockHashForTest(false);
  EXPECT_EQ(a.hash, b.hash);
  EXPECT_NE(a.fingerprint, b.fingerprint);
  hasher.Reset();
  EXPECT_NE(hasher.Append(Tokens(16)).hash, a.hash);
}

}  // namespace
}  // namespace cistern
