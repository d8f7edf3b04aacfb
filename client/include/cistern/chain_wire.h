#pragma once

#include <string>
#include <string_view>

#include "cistern/client.h"

// Chains between processes of one engine: who plans a request hashes its tokens once and hands the keys to
// its workers.
namespace cistern {

// Bytes that ParseChain takes; 40 a block and the layout. They hold keys, no tokens and no secret of the
// namespace. Empty for a chain without blocks.
std::string SerializeChain(const Chain& chain);

// InvalidArgument for anything but such bytes; never trust the length or the layout that they name. The chain
// can be looked up, loaded, stored and extended like the one it was made from.
Result<Chain> ParseChain(std::string_view bytes);

}  // namespace cistern
