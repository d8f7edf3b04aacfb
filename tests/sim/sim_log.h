#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/clock.h"

namespace cistern {

// What happened in one simulated run: a digest over every event, marks that say which situations came up, and
// the first violation. Readable lines go to `print` when there is one. One thread.
class SimLog {
 public:
  explicit SimLog(SimClock& clock) : clock_(clock) {}

  void SetPrinter(std::function<void(const std::string&)> print) { print_ = std::move(print); }
  // One event. Everything that makes two runs differ belongs into its arguments.
  void Event(std::string_view what, std::string_view who, uint64_t a = 0, uint64_t b = 0,
             std::string_view detail = {});
  void Mark(const std::string& name, uint64_t by = 1) {
    if (by != 0) marks_[name] += by;
  }
  // The run has failed; only the first reason is kept.
  void Fail(const std::string& why);

  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  uint64_t digest() const { return digest_; }
  uint64_t events() const { return events_; }
  const std::map<std::string, uint64_t>& marks() const { return marks_; }

 private:
  SimClock& clock_;
  std::function<void(const std::string&)> print_;
  uint64_t digest_ = 0;
  uint64_t events_ = 0;
  std::string failure_;
  std::map<std::string, uint64_t> marks_;
};

}  // namespace cistern
