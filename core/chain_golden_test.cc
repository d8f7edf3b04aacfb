#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/chain.h"

// Keys that must never change: they are matched here, by check_golden.py and by every other language that
// makes keys. To add a chain, write it with empty hashes and take what this test says, once check_golden.py
// agrees.
namespace cistern {
namespace {

std::string FromHex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

template <size_t N>
std::array<uint8_t, N> Fixed(const nlohmann::json& value) {
  const std::string raw = FromHex(value.get<std::string>());
  EXPECT_EQ(raw.size(), N);
  std::array<uint8_t, N> out{};
  std::copy_n(raw.begin(), std::min(raw.size(), N), out.begin());
  return out;
}

std::string Hex64(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, value);
  return text;
}

Extra::Kind KindOf(const std::string& name) {
  static const std::map<std::string, Extra::Kind> kKinds = {
      {"lora", Extra::Kind::kLora},
      {"content", Extra::Kind::kContent},
      {"prompt_embedding", Extra::Kind::kPromptEmbedding},
      {"salt", Extra::Kind::kSalt}};
  return kKinds.at(name);
}

TEST(ChainGolden, F03_MatchesTheCheckedInVectors) {
  std::ifstream file(CISTERN_CHAIN_GOLDEN);
  ASSERT_TRUE(file) << CISTERN_CHAIN_GOLDEN;
  const nlohmann::json golden = nlohmann::json::parse(file);
  EXPECT_EQ(golden.at("algorithm"), kKeyAlgorithm);
  int blocks = 0;
  for (const nlohmann::json& chain : golden.at("chains")) {
    SCOPED_TRACE(chain.at("name").get<std::string>());
    ChainRoot root;
    root.layout.bytes = Fixed<16>(chain.at("layout"));
    root.namespace_secret = Fixed<32>(chain.at("namespace_secret"));
    root.compute_digest = Fixed<32>(chain.at("compute_digest"));
    root.weights_epoch = chain.at("weights_epoch").get<uint64_t>();
    ChainHasher hasher(root);
    EXPECT_EQ(ToHex(hasher.root()), chain.at("root").get<std::string>());
    for (const nlohmann::json& block : chain.at("blocks")) {
      const auto tokens = block.at("tokens").get<std::vector<uint32_t>>();
      std::vector<Extra> extras;
      for (const nlohmann::json& extra : block.at("extras")) {
        extras.push_back({.kind = KindOf(extra.at("kind").get<std::string>()),
                          .offset = extra.at("offset").get<uint32_t>(),
                          .value = FromHex(extra.at("value").get<std::string>())});
      }
      const BlockKey key = hasher.Append(tokens, extras);
      EXPECT_EQ(ToHex(key.hash), block.at("hash").get<std::string>()) << "block " << blocks;
      EXPECT_EQ(Hex64(key.fingerprint), block.at("fingerprint").get<std::string>()) << "block " << blocks;
      ++blocks;
    }
  }
  EXPECT_GE(blocks, 19);
}

}  // namespace
}  // namespace cistern
