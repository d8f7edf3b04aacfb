#include "client/cli/tokens.h"

#include <charconv>
#include <string>

namespace cistern {

absl::StatusOr<std::vector<uint32_t>> ParseTokens(std::string_view text) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<uint32_t> tokens;
  size_t at = text.find_first_not_of(kBetween);
  while (at != std::string_view::npos) {
    const size_t end = text.find_first_of(kBetween, at);
    const std::string_view word = text.substr(at, end == std::string_view::npos ? end : end - at);
    uint32_t token = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || stop != word.data() + word.size()) {
      return absl::InvalidArgumentError("token " + std::to_string(tokens.size() + 1) + " ('" +
                                        std::string(word.substr(0, 32)) +
                                        "') is no number from 0 to 4294967295");
    }
    tokens.push_back(token);
    at = end == std::string_view::npos ? end : text.find_first_not_of(kBetween, end);
  }
  return tokens;
}

}  // namespace cistern
