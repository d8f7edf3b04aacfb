#pragma once

#include <cstdint>
#include <string_view>

namespace cistern {

// Walks one line of JSON without building a tree: trace lines are mostly long arrays of integers. Every
// method returns false on what it did not expect and leaves the cursor anywhere; the caller then gives the
// line up. Borrows the text.
class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : at_(text.data()), begin_(at_), end_(at_ + text.size()) {}

  // Skips white space, then takes `c`.
  bool Take(char c) {
    SkipSpace();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool AtEnd() {
    SkipSpace();
    return at_ == end_;
  }
  // A string without its quotes, escapes left as they are (names of trace fields have none).
  bool TakeString(std::string_view& out);
  // A non-negative integer without sign, fraction or exponent.
  bool TakeUint(uint64_t& out) {
    SkipSpace();
    const char* const first = at_;
    uint64_t value = 0;
    for (; at_ != end_ && *at_ >= '0' && *at_ <= '9'; ++at_) {
      if (at_ - first >= kDigitsMax) return false;
      value = value * 10 + static_cast<uint64_t>(*at_ - '0');
    }
    out = value;
    return at_ != first && (at_ == end_ || (*at_ != '.' && *at_ != 'e' && *at_ != 'E'));
  }
  // Any number; its fraction is cut off.
  bool TakeInt(int64_t& out);
  // Any value, at most kDepthMax deep.
  bool SkipValue(int depth = 0);

  // For messages: characters consumed, counted from 1.
  size_t column() const { return static_cast<size_t>(at_ - begin_) + 1; }

 private:
  static constexpr int kDigitsMax = 19;  // 10^19 - 1 fits 64 bits.
  static constexpr int kDepthMax = 16;

  void SkipSpace() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
  }
  bool SkipMembers(char close, bool named, int depth);

  const char* at_;
  const char* begin_;
  const char* end_;
};

}  // namespace cistern
