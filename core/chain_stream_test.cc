#include "core/chain_stream.h"

#include <vector>

#include "core/random.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

ChainRoot Root() {
  ChainRoot root;
  root.namespace_secret.fill(9);
  return root;
}

std::vector<uint32_t> Tokens(size_t count) {
  Random random(count + 1);
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random.Next());
  return tokens;
}

TEST(ChainStream, GivesTheKeysOfTheWholeHoweverTokensCome) {
  const uint64_t seed = 11;
  RecordProperty("seed", static_cast<int>(seed));
  Random random(seed);
  for (int round = 0; round < 50; ++round) {
    const auto block_tokens = static_cast<uint32_t>(1 + random.Below(20));
    const std::vector<uint32_t> tokens = Tokens(random.Below(400));
    std::vector<BlockKey> whole;
    ChainHasher hasher(Root());
    hasher.AppendAll(tokens, block_tokens, whole);
    ChainStream stream(Root(), block_tokens);
    for (size_t at = 0; at < tokens.size();) {
      if (random.Chance(0.5)) {
        stream.Append(tokens[at++]);
        continue;
      }
      const size_t count = random.Below(tokens.size() - at + 1);
      stream.Append(absl::MakeConstSpan(tokens).subspan(at, count));
      at += count;
    }
    EXPECT_EQ(std::vector<BlockKey>(stream.keys().begin(), stream.keys().end()), whole) << "round " << round;
    EXPECT_EQ(stream.tokens(), tokens.size());
    const auto known = absl::MakeConstSpan(whole).subspan(0, whole.size() / 2);
    ChainStream resumed(Root(), block_tokens, known);
    resumed.Append(absl::MakeConstSpan(tokens).subspan(known.size() * block_tokens));
    EXPECT_EQ(std::vector<BlockKey>(resumed.keys().begin(), resumed.keys().end()), whole);
  }
}

TEST(ChainStream, F02_ExtrasBelongToTheBlockTheyCameInAndAllAfterIt) {
  const std::vector<uint32_t> tokens = Tokens(12);
  const auto keys = [&](size_t at, Extra::Kind kind, const char* value) {
    ChainStream stream(Root(), 4);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i == at) {
        EXPECT_TRUE(stream.AddExtra({.kind = kind, .value = value}).ok());
      }
      stream.Append(tokens[i]);
    }
    return std::vector<BlockKey>(stream.keys().begin(), stream.keys().end());
  };
  const auto plain = keys(99, Extra::Kind::kSalt, "");
  const auto lora = keys(5, Extra::Kind::kLora, "a");
  EXPECT_EQ(lora[0], plain[0]);
  EXPECT_NE(lora[1].hash, plain[1].hash);
  EXPECT_NE(lora[2].hash, plain[2].hash) << "by the chain";
  EXPECT_EQ(lora[2].fingerprint, plain[2].fingerprint) << "its own tokens and extras are the same";
  EXPECT_NE(keys(5, Extra::Kind::kSalt, "a")[1], lora[1]) << "an adapter is no salt";
  EXPECT_NE(keys(5, Extra::Kind::kContent, "a")[1], keys(6, Extra::Kind::kContent, "a")[1])
      << "another offset";
}

TEST(ChainStream, RefusesExtrasOverTheirLimits) {
  ChainStream stream(Root(), 4);
  EXPECT_FALSE(
      stream.AddExtra({.kind = Extra::Kind::kSalt, .value = std::string(kExtraBytesMax + 1, 'x')}).ok());
  for (size_t i = 0; i < kExtrasPerBlockMax; ++i) EXPECT_TRUE(stream.AddExtra({.value = "s"}).ok());
  EXPECT_FALSE(stream.AddExtra({.value = "s"}).ok());
}

}  // namespace
}  // namespace cistern
