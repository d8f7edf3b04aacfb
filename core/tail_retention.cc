#include "core/tail_retention.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/check.h"

namespace cistern {

absl::StatusOr<TailRetention> ParseTailRetention(std::string_view text) {
  TailRetention out;
  if (text == "ends") return out;
  if (text == "junctions") {
    out.kind = TailRetention::Kind::kJunctions;
    return out;
  }
  constexpr std::string_view kEveryPrefix = "every:";
  if (text.substr(0, kEveryPrefix.size()) == kEveryPrefix) {
    const std::string_view number = text.substr(kEveryPrefix.size());
    out.kind = TailRetention::Kind::kEvery;
    if (absl::SimpleAtoi(absl::string_view(number.data(), number.size()), &out.every_tokens) &&
        out.every_tokens != 0) {
      return out;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("retention: '", std::string(text), "' is not ends, junctions or every:N with N above 0"));
}

std::string TailRetentionName(const TailRetention& retention) {
  switch (retention.kind) {
    case TailRetention::Kind::kEnds:
      return "ends";
    case TailRetention::Kind::kJunctions:
      return "junctions";
    case TailRetention::Kind::kEvery:
      break;
  }
  return absl::StrCat("every:", retention.every_tokens);
}

void ChooseTails(const TailRetention& retention, const TailSituation& situation,
                 std::vector<WantedTail>& out) {
  CISTERN_CHECK(situation.align_tokens != 0);
  out.clear();
  const uint64_t align = situation.align_tokens;
  const auto add = [&](uint64_t tokens, bool junction) {
    tokens = std::min(tokens, situation.max_tokens) / align * align;
    if (tokens > situation.hit_tokens) out.push_back({tokens, junction});
  };
  add(situation.max_tokens, false);
  for (const uint64_t end : situation.turn_ends) add(end, false);
  // A history that reaches further than its tails was another prompt's, which went on differently: this
  // prompt is the second one seen there.
  if (retention.kind == TailRetention::Kind::kJunctions && situation.history_tokens > situation.hit_tokens) {
    add(situation.history_tokens, true);
  }
  if (retention.kind == TailRetention::Kind::kEvery) {
    const uint64_t step = (retention.every_tokens + align - 1) / align * align;
    const uint64_t last = situation.max_tokens / step;
    const uint64_t first =
        std::max(situation.hit_tokens / step + 1, last - std::min<uint64_t>(last, kTailsPerRequestMax));
    for (uint64_t i = first; i <= last; ++i) add(i * step, false);
  }
  std::sort(out.begin(), out.end(), [](const WantedTail& a, const WantedTail& b) {
    return a.tokens != b.tokens ? a.tokens < b.tokens : a.junction > b.junction;
  });
  out.erase(std::unique(out.begin(), out.end(),
                        [](const WantedTail& a, const WantedTail& b) { return a.tokens == b.tokens; }),
            out.end());
  if (out.size() > kTailsPerRequestMax) {
    out.erase(out.begin(), out.end() - static_cast<ptrdiff_t>(kTailsPerRequestMax));
  }
}

}  // namespace cistern
