#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "client/cli/output.h"

namespace cistern {

inline constexpr uint64_t kRemarksMax = 20;  // Of one kind that are named one by one.
// Given to a trace's reader for lines that are no request: names the first kRemarksMax on stderr, counts all.
// Of one command; one thread.
class BrokenLines {
 public:
  explicit BrokenLines(std::string file) : file_(std::move(file)) {}
  void operator()(uint64_t line, std::string_view why) const {
    if (++count_ <= kRemarksMax)
      Note(file_ + " line " + std::to_string(line) + " left out: " + std::string(why));
  }
  // How many there were beyond those.
  void TellRest() const {
    if (count_ > kRemarksMax)
      Note(std::to_string(count_ - kRemarksMax) + " more lines left out, not named here");
  }
  uint64_t count() const { return count_; }

 private:
  std::string file_;
  mutable uint64_t count_ = 0;  // absl::FunctionRef calls it as const.
};

}  // namespace cistern
