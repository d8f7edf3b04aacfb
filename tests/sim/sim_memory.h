#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client/core/client_types.h"
#include "core/random.h"
#include "tests/sim/sim_chains.h"

namespace cistern {

// The pages of one call: memory with canaries before, between and behind, cut into segments at random places.
// While the call is out it holds poison or content; once it has ended the memory is poisoned anew, and any
// byte that changes later is a write into memory that was given back. Moves, never copies: segments point
// into it.
class SimPages {
 public:
  // Pages for `count` blocks from `first` on, of these parts.
  SimPages(const SimChain& chain, StoredParts parts, uint32_t first, uint32_t count, Random& random);
  // The same in memory of a put window, BytesFor(...) long; it has to be given back after Retire.
  SimPages(const SimChain& chain, StoredParts parts, uint32_t first, uint32_t count, Random& random,
           std::byte* window);
  static size_t BytesFor(const StoredParts& parts, uint32_t count);

  void FillWithContent();  // A Store's source.
  void PoisonForLoad();
  PageView view() const { return {segments_, ends_}; }
  ConstPageView const_view() const { return {const_segments_, ends_}; }
  uint32_t count() const { return count_; }
  std::byte* window_buffer() const { return own_.empty() ? memory_.data() : nullptr; }
  uint32_t first() const { return first_; }

  // True when page `i` has exactly the bytes of its block.
  bool IsRight(uint32_t i) const;
  // Empty, or what is broken around and between the pages.
  std::string CheckCanaries() const;
  // The call has ended: from now on nobody may write here.
  void Retire();
  // Empty, or where a byte changed after Retire.
  std::string CheckRetired() const;

 private:
  size_t PageBytes() const { return page_bytes_; }
  size_t PageAt(uint32_t i) const { return kCanaryBytes + i * (PageBytes() + kCanaryBytes); }
  static constexpr size_t kCanaryBytes = 64;

  const SimChain& chain_;
  const StoredParts parts_;
  const size_t page_bytes_;
  const uint32_t first_, count_;
  std::vector<std::byte> own_;  // Empty when the memory is a window's.
  std::span<std::byte> memory_;
  std::vector<Segment> segments_;
  std::vector<ConstSegment> const_segments_;
  std::vector<uint32_t> ends_;
};

}  // namespace cistern
