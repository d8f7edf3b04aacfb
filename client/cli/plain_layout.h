#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cistern/client.h"

namespace cistern {

// The layout that commands use for blocks without a model behind them: one part a block, bytes of no known
// meaning.
Layout PlainLayout(uint32_t block_tokens, uint64_t block_bytes);

// Appends the tokens that stand for the block with this id: a function of the id alone, so equal ids of a
// trace give equal prefixes.
void AppendBlockTokens(uint64_t id, uint32_t block_tokens, std::vector<uint32_t>& tokens);

}  // namespace cistern
