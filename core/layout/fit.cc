#include "core/layout/fit.h"

#include <algorithm>
#include <limits>

#include "core/layout/geometry.h"

namespace cistern::layout {
namespace {

constexpr uint64_t kFull = uint64_t{1} << 40;  // A boundary where every window is full.
constexpr uint64_t kStripeBytesMin = 128u << 10;

std::vector<uint64_t> LayerSizes(const Layout& layout, Group group) {
  group.span_ends.clear();
  std::vector<uint64_t> sizes;
  for (uint32_t layer : LayersOf(group))
    sizes.push_back(LayerRange(layout, group, 0, layer, kFull).value_or(ByteRange{}).bytes);
  return sizes;
}

// Ends (as positions behind the last layer) of spans filled one after the other up to `cap`.
std::vector<size_t> Cut(const std::vector<uint64_t>& sizes, uint64_t cap) {
  std::vector<size_t> ends;
  uint64_t sum = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0 && sum + sizes[i] > cap) {
      ends.push_back(i);
      sum = 0;
    }
    sum += sizes[i];
  }
  ends.push_back(sizes.size());
  return ends;
}

}  // namespace

void FitSpans(const Layout& layout, Group& group) {
  group.span_ends.clear();
  const std::vector<uint64_t> sizes = LayerSizes(layout, group);
  if (sizes.empty()) return;
  const size_t spans = Cut(sizes, kPartBytesMax).size();
  if (spans == 1) return;
  // The smallest cap that needs no more spans makes them as equal as they can be.
  uint64_t too_small = *std::max_element(sizes.begin(), sizes.end()) - 1, enough = kPartBytesMax;
  if (too_small >= enough) enough = too_small + 1;
  while (enough - too_small > 1) {
    const uint64_t middle = too_small + (enough - too_small) / 2;
    (Cut(sizes, middle).size() <= spans ? enough : too_small) = middle;
  }
  const std::vector<uint32_t> layers = LayersOf(group);
  for (size_t end : Cut(sizes, enough))
    group.span_ends.push_back(end < layers.size() ? layers[end] : layers.back() + 1);
}

uint32_t FitStripeLayers(const Layout& layout) {
  size_t most = 0;
  const Group* history = nullptr;
  for (const Group& group : layout.groups) {
    most = std::max(most, LayersOf(group).size());
    if (history == nullptr && group.family == Family::kHistory) history = &group;
  }
  if (history == nullptr) return 0;
  const std::vector<uint64_t> sizes = LayerSizes(layout, *history);
  for (size_t step = 1; step <= sizes.size(); ++step) {
    if ((sizes.size() + step - 1) / step > kStripesMax) continue;
    uint64_t least = std::numeric_limits<uint64_t>::max();
    for (size_t i = 0; i + step <= sizes.size(); i += step) {
      uint64_t sum = 0;
      for (size_t j = i; j < i + step; ++j) sum += sizes[j];
      least = std::min(least, sum);
    }
    if (least >= kStripeBytesMin)
      return static_cast<uint32_t>(std::max(step, (most + kStripesMax - 1) / kStripesMax));
  }
  return 0;
}

uint32_t FitBlockTokens(const Layout& layout, uint32_t step, uint32_t tokens_max) {
  uint32_t best = step;
  for (Layout trial = layout; best * 2 <= tokens_max; best *= 2) {
    trial.block_tokens = best * 2;
    for (const Group& group : trial.groups) {
      if (group.family == Family::kHistory && PartBytes(trial, group, 0, 0) > kPartBytesMax) return best;
    }
  }
  return best;
}

uint16_t FitSlices(uint32_t heads) {
  for (uint32_t slices = 8; slices > 1; --slices) {
    if (heads % slices == 0) return static_cast<uint16_t>(slices);
  }
  return 1;
}

}  // namespace cistern::layout
