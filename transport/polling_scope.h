#pragma once

namespace cistern {

// Says for as long as it lives that Poll is under way. An exception, for want of memory, ends it as well: a
// transport that took itself for polling would never poll again.
class PollingScope {
 public:
  explicit PollingScope(bool& polling) : polling_(polling) { polling_ = true; }
  ~PollingScope() { polling_ = false; }
  PollingScope(const PollingScope&) = delete;
  PollingScope& operator=(const PollingScope&) = delete;

 private:
  bool& polling_;
};

}  // namespace cistern
