#include "client/window.h"

#include <gtest/gtest.h>

#include <map>

#include "core/random.h"

namespace cistern {
namespace {

TEST(PutWindow, HandsOutDistinctAlignedMemoryUntilFullAndTakesItBack) {
  auto made = PutWindow::Create(1 << 20);
  ASSERT_TRUE(made.ok()) << made.status();
  PutWindow window = *std::move(made);
  const uint64_t seed = 7;
  Random random(seed);
  SCOPED_TRACE(seed);
  std::map<char*, size_t> held;
  for (int i = 0; i < 20000; ++i) {
    if (random.Chance(0.55)) {
      const size_t bytes = 1 + random.Below(40000);
      auto* p = static_cast<char*>(window.Allocate(bytes));
      if (p == nullptr) continue;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % kWindowAlignment, 0u);
      const auto next = held.lower_bound(p);
      if (next != held.end()) {
        EXPECT_LE(p + bytes, next->first);
      }
      if (next != held.begin()) {
        EXPECT_LE(std::prev(next)->first + std::prev(next)->second, p);
      }
      EXPECT_TRUE(window.OffsetOf(p, bytes).has_value());
      held[p] = bytes;
    } else if (!held.empty()) {
      auto it = std::next(held.begin(), static_cast<long>(random.Below(held.size())));
      EXPECT_TRUE(window.Free(it->first));
      EXPECT_FALSE(window.Free(it->first));
      held.erase(it);
    }
  }
  for (const auto& [p, bytes] : held) EXPECT_TRUE(window.Free(p));
  EXPECT_EQ(window.allocated_bytes(), 0u);
  EXPECT_NE(window.Allocate(1 << 20), nullptr);  // In one piece again.
  EXPECT_EQ(window.Allocate(1), nullptr);
}

TEST(PutWindow, ForeignMemoryIsNotItsOwn) {
  auto window = PutWindow::Create(1 << 16);
  ASSERT_TRUE(window.ok());
  int other = 0;
  EXPECT_FALSE(window->Free(&other));
  EXPECT_FALSE(window->OffsetOf(&other, 4).has_value());
  const std::byte* end = window->region().data() + (1 << 16);
  EXPECT_TRUE(window->OffsetOf(end - 8, 8).has_value());
  EXPECT_FALSE(window->OffsetOf(end - 8, 9).has_value());
  EXPECT_FALSE(window->OffsetOf(end, 1).has_value());  // Staging chunks are not the caller's.
}

TEST(PutWindow, ChunksAreBounded) {
  auto window = PutWindow::Create(0);
  ASSERT_TRUE(window.ok());
  for (size_t i = 0; i < kStagingChunks; ++i) EXPECT_TRUE(window->TakeChunk().has_value());
  EXPECT_FALSE(window->TakeChunk().has_value());
  window->ReturnChunk(2);
  EXPECT_EQ(window->TakeChunk(), 2u);
}

TEST(PutWindow, F59_ManyDistinctBuffersOfCallersRegisterNothing) {
  auto window = PutWindow::Create(1 << 20);
  ASSERT_TRUE(window.ok());
  const size_t bytes = window->region().bytes();
  for (uintptr_t i = 1; i <= 100'000; ++i) {
    EXPECT_FALSE(window->OffsetOf(reinterpret_cast<void*>(i * 8192), 4096).has_value());
  }
  EXPECT_EQ(window->allocations(), 0u);
  EXPECT_EQ(window->region().bytes(), bytes);
}

}  // namespace
}  // namespace cistern
