#include "client/cli/plain_layout.h"

#include "client/cli/content.h"

namespace cistern {

Layout PlainLayout(uint32_t block_tokens, uint64_t block_bytes) {
  Layout layout;
  layout.model = "plain";
  layout.block_tokens = block_tokens;
  layout.part_bytes = static_cast<uint32_t>(block_bytes);
  return layout;
}

void AppendBlockTokens(uint64_t id, uint32_t block_tokens, std::vector<uint32_t>& tokens) {
  const size_t first = tokens.size();
  tokens.resize(first + block_tokens);
  // Ids of a trace are small and near each other; the seed spreads them, so that no two blocks have a token
  // row in common.
  const uint64_t seed = ContentSeed(0x70c3, id);
  for (uint32_t i = 0; i < block_tokens; ++i) {
    tokens[first + i] = static_cast<uint32_t>((seed + i * 0x9e3779b97f4a7c15) >> 32);
  }
}

}  // namespace cistern
