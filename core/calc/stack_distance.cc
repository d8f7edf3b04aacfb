#include "core/calc/stack_distance.h"

#include <algorithm>

namespace cistern {

void StackDistance::Add(uint32_t time, uint32_t delta) {
  for (; time < tree_.size(); time += time & -time) tree_[time] += delta;
}

uint32_t StackDistance::CountUpTo(uint32_t time) const {
  uint32_t count = 0;
  for (; time > 0; time &= time - 1) count += tree_[time];
  return count;
}

uint32_t StackDistance::Distance(uint32_t entry) const {
  const uint32_t time = time_of_[entry];
  return time == 0 ? 0 : live_ - CountUpTo(time) + 1;
}

void StackDistance::Touch(uint32_t entry) {
  if (now_ + 1 >= tree_.size()) Renumber();
  if (const uint32_t before = time_of_[entry]; before != 0) {
    Add(before, UINT32_MAX);  // Minus one.
  } else {
    ++live_;
  }
  time_of_[entry] = ++now_;
  entry_at_[now_] = entry;
  Add(now_, 1);
}

// Live touches become times 1 … live_, in their order; as many times again are free for what comes.
void StackDistance::Renumber() {
  const uint32_t times = std::max(kTimesMin, 2 * live_ + 2);
  std::vector<uint32_t> kept;
  kept.reserve(live_);
  for (uint32_t time = 1; time <= now_; ++time) {
    if (time_of_[entry_at_[time]] == time) kept.push_back(entry_at_[time]);
  }
  entry_at_.assign(times, 0);
  tree_.assign(times, 0);
  for (uint32_t i = 0; i < kept.size(); ++i) {
    time_of_[kept[i]] = i + 1;
    entry_at_[i + 1] = kept[i];
    tree_[i + 1] = 1;
  }
  for (uint32_t i = 1; i < times; ++i) {
    if (const uint32_t parent = i + (i & -i); parent < times) tree_[parent] += tree_[i];
  }
  now_ = static_cast<uint32_t>(kept.size());
}

}  // namespace cistern
