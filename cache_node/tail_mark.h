#pragma once

#include <cstdint>

namespace cistern {

// What makes a part one of a tail.
struct TailMark {
  uint32_t parts = 0;     // Of the whole tail; 0: not of a tail.
  bool junction = false;  // Prompts part at its boundary.

  // One word, as the disk log has it.
  uint32_t Packed() const { return parts | (junction ? kJunctionBit : 0); }
  static TailMark Unpack(uint32_t packed) {
    return {.parts = packed & ~kJunctionBit, .junction = (packed & kJunctionBit) != 0};
  }
  friend bool operator==(const TailMark&, const TailMark&) = default;

  static constexpr uint32_t kJunctionBit = 1u << 31;
};

}  // namespace cistern
