#include "core/trace/json_cursor.h"

#include <charconv>
#include <cmath>

namespace cistern {

bool JsonCursor::TakeString(std::string_view& out) {
  if (!Take('"')) return false;
  const char* const first = at_;
  for (; at_ != end_; ++at_) {
    if (*at_ == '"') {
      out = {first, static_cast<size_t>(at_ - first)};
      ++at_;
      return true;
    }
    if (*at_ == '\\' && ++at_ == end_) return false;
  }
  return false;
}

bool JsonCursor::TakeInt(int64_t& out) {
  SkipSpace();
  if (at_ == end_ || (*at_ != '-' && (*at_ < '0' || *at_ > '9'))) return false;  // No inf, no nan.
  double value = 0;
  const auto [rest, error] = std::from_chars(at_, end_, value);
  if (error != std::errc() || !(std::fabs(value) < 0x1p53)) return false;  // Beyond, integers are not exact.
  at_ = rest;
  out = static_cast<int64_t>(value);
  return true;
}

bool JsonCursor::SkipMembers(char close, bool named, int depth) {
  if (Take(close)) return true;
  do {
    std::string_view name;
    if (named && !(TakeString(name) && Take(':'))) return false;
    if (!SkipValue(depth + 1)) return false;
  } while (Take(','));
  return Take(close);
}

bool JsonCursor::SkipValue(int depth) {
  SkipSpace();
  if (at_ == end_ || depth > kDepthMax) return false;
  if (*at_ == '"') {
    std::string_view ignored;
    return TakeString(ignored);
  }
  if (Take('{')) return SkipMembers('}', /*named=*/true, depth);
  if (Take('[')) return SkipMembers(']', /*named=*/false, depth);
  const std::string_view rest(at_, static_cast<size_t>(end_ - at_));
  for (const std::string_view word : {"true", "false", "null"}) {
    if (rest.substr(0, word.size()) == word) {
      at_ += word.size();
      return true;
    }
  }
  int64_t ignored = 0;
  return TakeInt(ignored);
}

}  // namespace cistern
