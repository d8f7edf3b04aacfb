#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>

namespace cistern {

// Keys of evicted entries, without bytes, each with 32 bits of its policy's. Lines of eight; the oldest of a
// line makes room. A key is known by its line and 32 bits of a mix of it: a stranger is taken for one of the
// eight there with a chance of 8 / 2^32, which costs a wrong guess and no more. 8 bytes a ghost; untouched
// lines take no memory. Owned by a policy; one thread; allocates once.
class GhostTable {
 public:
  explicit GhostTable(uint64_t ghosts);

  // Remembers a key with a value other than 0. Returns the value that it pushed out, or 0.
  uint32_t Push(uint64_t key, uint32_t value);
  // Forgets a key; returns its value, or 0.
  uint32_t Take(uint64_t key);
  void Prefetch(uint64_t key) const { __builtin_prefetch(&LineOf(Mix(key))); }
  uint64_t capacity() const { return uint64_t{line_count_} * kWays; }
  uint64_t memory_bytes() const { return lines_used_ * sizeof(Line); }

 private:
  static constexpr int kWays = 8;
  struct Ghost {
    uint32_t tag;
    uint32_t value;  // 0: free. Newest first within a line.
  };
  struct alignas(64) Line {
    Ghost ways[kWays];
  };
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }  // It came from calloc.
  };
  static uint64_t Mix(uint64_t key);
  Line& LineOf(uint64_t mixed) const { return lines_[static_cast<uint32_t>(mixed >> 32) % line_count_]; }

  uint32_t line_count_ = 0;
  uint64_t lines_used_ = 0;  // Lines that have had a ghost.
  std::unique_ptr<void, Free> memory_;
  Line* lines_ = nullptr;  // In memory_.
};

}  // namespace cistern
