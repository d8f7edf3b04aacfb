#include "cache_node/deadline_heap.h"

#include <gtest/gtest.h>

#include <map>

#include "core/random.h"

namespace cistern {
namespace {

TEST(DeadlineHeap, AgreesWithASortedMapOverRandomChanges) {
  Random random(5);
  DeadlineHeap heap;
  std::map<uint32_t, Nanos> truth;
  for (int step = 0; step < 20'000; ++step) {
    const auto id = static_cast<uint32_t>(random.Below(200));
    const auto at = static_cast<Nanos>(random.Below(1000));
    if (!heap.Has(id)) {
      heap.Add(id, at);
      truth[id] = at;
    } else if (random.Chance(0.5)) {
      heap.Remove(id);
      truth.erase(id);
    } else {
      heap.Move(id, at);
      truth[id] = at;
    }
    Nanos least = kNever;
    for (const auto& [i, when] : truth) least = std::min(least, when);
    ASSERT_EQ(heap.next(), least) << "step " << step;
    if (!truth.empty()) {
      ASSERT_EQ(truth.at(heap.next_id()), least);
    }
  }
}

}  // namespace
}  // namespace cistern
