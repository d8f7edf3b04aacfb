#include "tests/sim/sim_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cistern {
namespace {

constexpr std::byte kCanary{0xc5};
constexpr std::byte kPoison{0xa7};
constexpr std::byte kRetired{0x3d};

}  // namespace

SimPages::SimPages(const SimChain& chain, StoredParts parts, uint32_t first, uint32_t count, Random& random)
    : SimPages(chain, std::move(parts), first, count, random, nullptr) {}

SimPages::SimPages(const SimChain& chain, StoredParts parts, uint32_t first, uint32_t count, Random& random,
                   std::byte* window)
    : chain_(chain),
      parts_(std::move(parts)),
      page_bytes_(parts_.TotalBytes()),
      first_(first),
      count_(count) {
  if (window == nullptr) own_.resize(PageAt(count));
  memory_ = {window == nullptr ? own_.data() : window, PageAt(count)};
  std::fill(memory_.begin(), memory_.end(), kCanary);
  for (uint32_t i = 0; i < count; ++i) {
    size_t at = PageAt(i), left = PageBytes();
    while (left != 0) {
      const size_t bytes = random.Chance(0.7) ? left : 1 + random.Below(left);
      segments_.push_back({memory_.data() + at, bytes});
      const_segments_.push_back({memory_.data() + at, bytes});
      at += bytes;
      left -= bytes;
    }
    ends_.push_back(static_cast<uint32_t>(segments_.size()));
  }
}

size_t SimPages::BytesFor(const StoredParts& parts, uint32_t count) {
  return kCanaryBytes + count * (parts.TotalBytes() + kCanaryBytes);
}

void SimPages::FillWithContent() {
  for (uint32_t i = 0; i < count_; ++i) {
    std::byte* at = memory_.data() + PageAt(i);
    for (size_t c = 0; c < parts_.coords.size(); at += parts_.bytes[c], ++c) {
      FillPart(chain_.blocks[first_ + i], parts_.coords[c], at, parts_.bytes[c]);
    }
  }
}

void SimPages::PoisonForLoad() {
  for (uint32_t i = 0; i < count_; ++i)
    std::memset(memory_.data() + PageAt(i), static_cast<int>(kPoison), PageBytes());
}

bool SimPages::IsRight(uint32_t i) const {
  const std::byte* at = memory_.data() + PageAt(i);
  for (size_t c = 0; c < parts_.coords.size(); at += parts_.bytes[c], ++c) {
    if (!IsPart(chain_.blocks[first_ + i], parts_.coords[c], at, parts_.bytes[c])) return false;
  }
  return true;
}

std::string SimPages::CheckCanaries() const {
  for (uint32_t i = 0; i <= count_; ++i) {
    const size_t begin = PageAt(i) - kCanaryBytes;
    for (size_t at = begin; at < begin + kCanaryBytes; ++at) {
      if (memory_[at] != kCanary) return "canary before page " + std::to_string(i) + " overwritten";
    }
  }
  return {};
}

void SimPages::Retire() { std::memset(memory_.data(), static_cast<int>(kRetired), memory_.size()); }

std::string SimPages::CheckRetired() const {
  const auto changed =
      std::find_if(memory_.begin(), memory_.end(), [](std::byte b) { return b != kRetired; });
  if (changed == memory_.end()) return {};
  return "byte " + std::to_string(changed - memory_.begin()) + " written after its call had ended";
}

}  // namespace cistern
