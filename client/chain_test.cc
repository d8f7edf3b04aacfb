#include "client/chain.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

namespace cistern {
namespace {

Layout Good() {
  Layout layout;
  layout.model = std::string("m");
  layout.block_tokens = 16;
  layout.part_bytes = 4096;
  return layout;
}
std::vector<uint32_t> Tokens(size_t n) {
  std::vector<uint32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 1u);
  return tokens;
}
const std::array<uint8_t, 32> kSecret = {1, 2, 3};

TEST(Chain, LeavesAPartFilledLastBlockOut) {
  const auto chain = HashChain(Good(), nullptr, Tokens(16 * 3 + 15), {}, kSecret, 0);
  ASSERT_TRUE(chain.ok());
  EXPECT_EQ(chain.value().blocks(), 3u);
}

TEST(Chain, ExtendedEqualsMadeAtOnce) {
  const auto tokens = Tokens(16 * 9);
  const ChainExtra extras[] = {{ChainExtra::Kind::kLora, 0, 0, "adapter"},
                               {ChainExtra::Kind::kContent, 6, 3, "picture"}};
  const auto whole = HashChain(Good(), nullptr, tokens, extras, kSecret, 5);
  const auto head =
      HashChain(Good(), nullptr, std::span(tokens).first(16 * 4), std::span(extras).first(1), kSecret, 5);
  ASSERT_TRUE(whole.ok() && head.ok());
  const auto joined = HashChain({}, head.value().rep(), std::span(tokens).subspan(16 * 4),
                                std::span(extras).subspan(1), {}, 0);
  ASSERT_TRUE(joined.ok());
  ASSERT_EQ(joined.value().blocks(), 9u);
  for (uint32_t i = 0; i < 9; ++i) {
    EXPECT_EQ(joined.value().hash(i), whole.value().hash(i)) << i;
    EXPECT_EQ(joined.value().fingerprint(i), whole.value().fingerprint(i)) << i;
  }
  EXPECT_EQ(head.value().hash(3), whole.value().hash(3));
}

TEST(Chain, SecretWeightsAndExtrasChangeEveryKey) {
  const auto tokens = Tokens(16);
  const auto base = HashChain(Good(), nullptr, tokens, {}, kSecret, 0);
  EXPECT_NE(base.value().hash(0), HashChain(Good(), nullptr, tokens, {}, {}, 0).value().hash(0));
  EXPECT_NE(base.value().hash(0), HashChain(Good(), nullptr, tokens, {}, kSecret, 1).value().hash(0));
  const ChainExtra salt{ChainExtra::Kind::kSalt, 0, 0, "x"};
  EXPECT_NE(base.value().hash(0), HashChain(Good(), nullptr, tokens, {&salt, 1}, kSecret, 0).value().hash(0));
}

TEST(Chain, F55_BadLayoutsAndExtrasNameTheField) {
  const auto message = [](const Layout& layout, std::span<const ChainExtra> extras = {}) {
    const auto chain = HashChain(layout, nullptr, Tokens(64), extras, kSecret, 0);
    EXPECT_FALSE(chain.ok());
    EXPECT_EQ(chain.status().code(), Code::kInvalidArgument);
    return chain.ok() ? std::string() : chain.status().message();
  };
  Layout layout = Good();
  layout.block_tokens = 0;
  EXPECT_NE(message(layout).find("block_tokens"), std::string::npos) << message(layout);
  layout = Good();
  layout.part_bytes = 0;
  EXPECT_NE(message(layout).find("part_bytes"), std::string::npos);
  layout.part_bytes = (4u << 20) + 1;
  EXPECT_NE(message(layout).find("part_bytes"), std::string::npos);
  layout = Good();
  layout.slices = 0;
  EXPECT_NE(message(layout).find("slices"), std::string::npos);
  const ChainExtra outside{ChainExtra::Kind::kContent, 0, 16, "x"};
  EXPECT_NE(message(Good(), {&outside, 1}).find("extras[0].offset"), std::string::npos);
  const ChainExtra big{ChainExtra::Kind::kSalt, 0, 0, std::string(kExtraBytesMax + 1, 'x')};
  EXPECT_NE(message(Good(), {&big, 1}).find("extras[0].value"), std::string::npos);
  const std::vector<ChainExtra> many(kExtrasPerBlockMax + 1, ChainExtra{ChainExtra::Kind::kSalt, 1, 0, "x"});
  EXPECT_NE(message(Good(), many).find("extras"), std::string::npos);
}

TEST(Chain, EmptyChainIsHarmless) {
  const Chain none;
  EXPECT_EQ(none.blocks(), 0u);
  EXPECT_EQ(none.fingerprint(3), 0u);
  EXPECT_EQ(none.layout().block_tokens, 0u);
}

}  // namespace
}  // namespace cistern
