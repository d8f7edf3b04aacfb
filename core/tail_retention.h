#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cistern {

inline constexpr size_t kTailsPerRequestMax = 4096;  // More than that, and the shallowest are left out.

// Where the tails of a prompt are worth keeping (DESIGN §4). A tail at every boundary would make the cache of
// some models many times bigger, so a policy names few.
struct TailRetention {
  enum class Kind : uint8_t {
    kEnds,       // Where the prompt and its turns end: the next turn goes on from there.
    kJunctions,  // The same, and where a second prompt leaves the way of a first.
    kEvery,      // The same as kEnds, and every so many tokens.
  };
  Kind kind = Kind::kEnds;
  uint32_t every_tokens = 0;
};
// "ends", "junctions" or "every:N"; InvalidArgument says so.
absl::StatusOr<TailRetention> ParseTailRetention(std::string_view text);
std::string TailRetentionName(const TailRetention& retention);

// One prompt as the cache found it.
struct TailSituation {
  uint64_t hit_tokens = 0;  // The engine goes on from here: it passes no boundary before it.
  uint64_t history_tokens =
      0;  // What would have hit, were every tail there. Beyond hit_tokens: prompts part there.
  uint64_t max_tokens = 0;    // The last boundary that a prompt like this one can use: its length - 1.
  uint32_t align_tokens = 0;  // Boundaries are its multiples. Not 0.
  absl::Span<const uint64_t> turn_ends{};  // Token counts where its turns end, ascending.
};
struct WantedTail {
  uint64_t tokens = 0;
  bool junction = false;  // Two prompts were seen to part here: a newer tail does not take its place.
  friend bool operator==(const WantedTail&, const WantedTail&) = default;
};

// The boundaries at which the engine should keep a tail, ascending, each once, all behind hit_tokens.
void ChooseTails(const TailRetention& retention, const TailSituation& situation,
                 std::vector<WantedTail>& out);

}  // namespace cistern
