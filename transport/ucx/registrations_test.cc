#include "transport/ucx/registrations.h"

#include <sys/mman.h>

#include <map>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGiB = size_t{1} << 30;

// Takes at most `call_max` bytes a call and `budget` in all; the `fail_at`-th call fails.
class FakeRegistrar final : public Registrar {
 public:
  absl::StatusOr<void*> Register(std::byte* data, size_t bytes) override {
    ++calls;
    if (calls == fail_at || bytes > call_max || bytes > budget)
      return absl::ResourceExhaustedError("no room");
    budget -= bytes;
    live[data] = bytes;
    return data;
  }
  void Unregister(void* handle) override {
    const auto found = live.find(static_cast<std::byte*>(handle));
    ASSERT_NE(found, live.end()) << "unregistered twice";
    budget += found->second;
    live.erase(found);
  }
  int calls = 0, fail_at = 0;
  size_t call_max = SIZE_MAX, budget = SIZE_MAX;
  std::map<std::byte*, size_t> live;
};

// Address space alone: nothing in here touches it.
class Space {
 public:
  explicit Space(size_t bytes) : bytes_(bytes) {
    void* at = mmap(nullptr, bytes + 2 * kGiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return;
    base_ = static_cast<std::byte*>(at);
    const auto gap = (kGiB - reinterpret_cast<uintptr_t>(at) % kGiB) % kGiB;
    data_ = base_ + gap;  // Whatever the page size, it begins on one.
  }
  ~Space() {
    if (base_ != nullptr) munmap(base_, bytes_ + 2 * kGiB);
  }
  std::byte* data() const { return data_; }

 private:
  size_t bytes_;
  std::byte *base_ = nullptr, *data_ = nullptr;
};

TEST(RegionPlan, F56_CutsNoPartCoversThePoolOnceAndKeepsPagesWhole) {
  for (const size_t pool : {64 * kMiB, 3 * kGiB, 100 * kGiB + 16 * kMiB}) {
    for (const size_t page : {size_t{4096}, 2 * kMiB, kGiB}) {
      for (const size_t region_max : {2 * kGiB, 64 * kGiB}) {
        for (const size_t slab : {4 * kMiB, 16 * kMiB, kGiB}) {
          if (slab % page != 0) continue;
          RegistrationLimits limits;
          limits.chunk_bytes_max = region_max;
          const auto plan = PlanRegion(nullptr, pool, page, slab, limits);
          ASSERT_TRUE(plan.ok()) << plan.status();
          EXPECT_LE(plan->chunk_bytes, region_max);
          EXPECT_GE(plan->chunk_bytes * plan->chunks, pool) << "not covered";
          EXPECT_LT(plan->chunk_bytes * (plan->chunks - 1), pool) << "covered twice";
          if (plan->chunks > 1) {
            EXPECT_EQ(plan->chunk_bytes % page, 0u) << "ends inside a page";
            EXPECT_EQ(plan->chunk_bytes % slab, 0u) << "cuts a slab, and so a part";
          }
        }
      }
    }
  }
}

TEST(RegionPlan, F56_NamesWhatDoesNotFit) {
  RegistrationLimits limits;
  limits.chunk_bytes_max = kMiB;
  auto* odd = reinterpret_cast<std::byte*>(uintptr_t{100});
  EXPECT_THAT(PlanRegion(odd, kMiB, 4096, kMiB, limits).status().message(), HasSubstr("page of 4096"));
  EXPECT_THAT(PlanRegion(nullptr, 64 * kMiB, 4096, 16 * kMiB, limits).status().message(),
              HasSubstr("16777216"));
  EXPECT_THAT(PlanRegion(nullptr, 64 * kMiB, 2 * kMiB, 3 * kMiB, limits).status().message(),
              HasSubstr("whole pages"));
}

TEST(Registrations, F56_UndoesAllWhenOneFailsAndNamesTheLockLimit) {
  const Space space(8 * kGiB);
  for (int fail_at = 1; fail_at <= 4; ++fail_at) {
    FakeRegistrar registrar;
    registrar.fail_at = fail_at;
    Registrations registrations(registrar, RegistrationLimits{});
    const auto added = registrations.Add(space.data(), 8 * kGiB, 16 * kMiB);
    EXPECT_EQ(added.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(added.status().message(), HasSubstr("lock limit (ulimit -l)"));
    EXPECT_THAT(registrar.live, ::testing::IsEmpty());
    EXPECT_EQ(registrations.bytes(), 0u);
    EXPECT_EQ(registrations.Find(space.data(), 1), nullptr);
  }
}

TEST(Registrations, F57_RegistersOnceInPiecesAndASecondUserTakesPart) {
  const Space space(5 * kGiB);
  FakeRegistrar registrar;
  registrar.call_max = 2 * kGiB;
  registrar.budget = 6 * kGiB;
  Registrations registrations(registrar, RegistrationLimits{});
  const auto first = registrations.Add(space.data(), 5 * kGiB, 16 * kMiB);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(registrar.calls, 3);
  const auto second = registrations.Add(space.data(), 5 * kGiB, 16 * kMiB);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(registrar.calls, 3) << "the budget was taken twice";
  registrations.Remove(space.data());
  EXPECT_EQ(registrar.live.size(), 3u);
  registrations.Remove(space.data());
  EXPECT_THAT(registrar.live, ::testing::IsEmpty());
}

TEST(Registrations, F57_OverTheBudgetSaysTheNumbers) {
  const Space space(5 * kGiB);
  FakeRegistrar registrar;
  RegistrationLimits limits;
  limits.total_bytes_max = 4 * kGiB;
  Registrations registrations(registrar, limits);
  const auto added = registrations.Add(space.data(), 5 * kGiB, 16 * kMiB);
  EXPECT_EQ(added.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(added.status().message(), HasSubstr("5368709120"));
  EXPECT_THAT(added.status().message(), HasSubstr("4294967296"));
  EXPECT_EQ(registrar.calls, 0);
}

TEST(Registrations, FindsWhatLiesWhollyInside) {
  const Space space(4 * kGiB);
  FakeRegistrar registrar;
  Registrations registrations(registrar, RegistrationLimits{});
  ASSERT_TRUE(registrations.Add(space.data() + 4096, 8192, 4096).ok());
  ASSERT_TRUE(registrations.Add(space.data() + kGiB, 3 * kGiB - kMiB, kMiB).ok());
  EXPECT_EQ(registrations.Find(space.data(), 1), nullptr);
  EXPECT_NE(registrations.Find(space.data() + 4096, 8192), nullptr);
  EXPECT_EQ(registrations.Find(space.data() + 4096, 8193), nullptr);
  EXPECT_EQ(registrations.Find(space.data() + 4096 + 8192, 1), nullptr);
  const Registration* large = registrations.Find(space.data() + 3 * kGiB, 100);
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(large->Find(space.data() + 3 * kGiB - 1, 2), nullptr) << "lies in two chunks";
  ASSERT_NE(large->Find(space.data() + 3 * kGiB, 2), nullptr);
  EXPECT_EQ(large->Find(space.data() + 3 * kGiB, 2)->data, space.data() + 3 * kGiB);
  EXPECT_FALSE(registrations.Add(space.data() + 8192, 8192, 4096).ok()) << "overlaps";
  EXPECT_FALSE(registrations.Add(space.data(), 8192, 4096).ok()) << "overlaps";
}

}  // namespace
}  // namespace cistern
