#include "client/convert.h"

#include <gtest/gtest.h>

#include <chrono>

namespace cistern {
namespace {

CallOptions Within(std::chrono::milliseconds deadline) {
  CallOptions options;
  options.deadline = deadline;
  return options;
}

TEST(DeadlineOf, NothingIsTheClientsDefaultAndTimeThatIsOverStaysOver) {
  EXPECT_EQ(DeadlineOf({}), 0);
  EXPECT_EQ(DeadlineOf(Within(std::chrono::milliseconds(5))), 5 * kMillisecond);
  for (const auto over : {std::chrono::milliseconds(-1), std::chrono::milliseconds::min()}) {
    EXPECT_EQ(DeadlineOf(Within(over)), 1);
  }
}

TEST(ToNanos, LongTimesDoNotWrapAround) {
  EXPECT_EQ(DeadlineOf(Within(std::chrono::milliseconds::max())), ToNanos(kDurationMax));
  EXPECT_GT(ToNanos(kDurationMax), 0);
  EXPECT_EQ(ToNanos(std::chrono::milliseconds::min()), -ToNanos(kDurationMax));
}

}  // namespace
}  // namespace cistern
