#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "core/check.h"

namespace cistern {

// Counts operations in flight of something that closes later; calls `done` once, when closed and empty. One
// thread.
class Gate {
 public:
  ~Gate() { CISTERN_CHECK(inside_ == 0); }
  bool TryEnter() { return closing_ ? false : (++inside_, true); }
  void Leave() {
    CISTERN_CHECK(inside_ > 0);
    --inside_;
    MaybeFinish();
  }
  void Close(std::function<void()> done) {
    CISTERN_CHECK(!closing_);
    closing_ = true;
    done_ = std::move(done);
    MaybeFinish();
  }
  uint64_t inside() const { return inside_; }

 private:
  void MaybeFinish() {
    if (closing_ && inside_ == 0 && done_) std::exchange(done_, nullptr)();
  }
  uint64_t inside_ = 0;
  bool closing_ = false;
  std::function<void()> done_;
};

}  // namespace cistern
