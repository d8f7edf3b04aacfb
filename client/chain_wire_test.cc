#include "cistern/chain_wire.h"

#include <gtest/gtest.h>

#include <numeric>

#include "client/chain.h"

namespace cistern {
namespace {

Chain Made(uint32_t blocks) {
  Layout layout;
  layout.model = std::string("m");
  layout.block_tokens = 16;
  layout.part_bytes = 4096;
  layout.slices = 2;
  layout.dtype = std::string("bf16");
  layout.geometry = std::string("g");
  layout.compute_digest = {7};
  std::vector<uint32_t> tokens(16 * blocks);
  std::iota(tokens.begin(), tokens.end(), 1u);
  return HashChain(layout, nullptr, tokens, {}, {1, 2, 3}, 4).value();
}

TEST(ChainWire, ComesBackWithKeysAndLayout) {
  const Chain chain = Made(3);
  const Result<Chain> back = ParseChain(SerializeChain(chain));
  ASSERT_TRUE(back.ok());
  ASSERT_EQ(back.value().blocks(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(back.value().hash(i), chain.hash(i));
    EXPECT_EQ(back.value().fingerprint(i), chain.fingerprint(i));
  }
  EXPECT_EQ(back.value().rep()->layout_id, chain.rep()->layout_id);
  EXPECT_EQ(back.value().layout().compute_digest, chain.layout().compute_digest);
}

TEST(ChainWire, ExtendsLikeTheOriginal) {
  const Chain chain = Made(2);
  const Chain back = ParseChain(SerializeChain(chain)).value();
  const std::vector<uint32_t> more(16, 9);
  const auto a = HashChain({}, chain.rep(), more, {}, {}, 0), b = HashChain({}, back.rep(), more, {}, {}, 0);
  EXPECT_EQ(a.value().hash(2), b.value().hash(2));
  EXPECT_EQ(a.value().fingerprint(2), b.value().fingerprint(2));
}

TEST(ChainWire, EmptyChainsHaveNoBytes) {
  EXPECT_EQ(SerializeChain(Chain()), "");
  EXPECT_FALSE(ParseChain("").ok());
}

TEST(ChainWire, RefusesEveryTruncationAndAnyExtraByte) {
  const std::string whole = SerializeChain(Made(2));
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(ParseChain(whole.substr(0, n)).ok()) << n;
  std::string longer = whole;
  longer.push_back('x');
  EXPECT_FALSE(ParseChain(longer).ok());
}

TEST(ChainWire, RefusesLayoutsThatBreakALimit) {
  std::string bytes = SerializeChain(Made(1));
  const size_t block_tokens_at = 8 + 4 + 1;  // Behind the magic and the model.
  bytes[block_tokens_at] = 0;
  const Result<Chain> refused = ParseChain(bytes);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("block_tokens"), std::string::npos) << refused.status().message();
}

}  // namespace
}  // namespace cistern
