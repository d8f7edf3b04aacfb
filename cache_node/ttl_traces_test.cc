// What a five-minute sliding time to live keeps of the hits that public traces allow, by the tier's own code.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cache_node/ram_tier.h"
#include "core/check.h"
#include "core/eviction/baselines/baselines.h"
#include "core/eviction/replay.h"

namespace cistern {
namespace {

constexpr uint32_t kTtlSeconds = 300;
constexpr uint32_t kPart = kSlotStrideMin;

std::string TraceFolder() {
  const char* folder = std::getenv("CISTERN_TRACES");
  return folder != nullptr && *folder != '\0' ? folder : CISTERN_TRACES_DEFAULT;
}

BlockHash HashOf(uint32_t id) {
  BlockHash hash;
  Random random(id + 1);
  for (size_t at = 0; at < hash.bytes.size(); at += 8)
    StoreLe<uint64_t>(hash.bytes.data() + at, random.Next());
  return hash;
}

struct Shares {
  double ideal = 0, kept = 0;
};

// A tier that has room for every block, so that nothing goes but by its time.
Shares Replay(const ReplayTrace& trace, const Retention& retention) {
  const uint64_t slab = SlabPool::SlabBytes(uint64_t{trace.unique} * kPart);
  const uint64_t ram = uint64_t{trace.unique} * kPart + 2 * slab;
  auto region = MemoryRegion::Create("ttl-test", SlabPool::RegionBytes(ram), true);
  CISTERN_CHECK(region.ok());
  Random random(20261130);
  NodeCounters counters;
  RamTier tier(*region, ram, kEvictionPolicyDefault, random, counters);
  std::vector<BlockHash> hashes(trace.unique);
  for (uint32_t id = 0; id < trace.unique; ++id) hashes[id] = HashOf(id);
  std::vector<bool> seen(trace.unique);
  uint64_t blocks = 0, hits = 0, ideal = 0;
  for (size_t r = 0; r < trace.requests.size(); ++r) {
    const std::vector<uint32_t>& chain = trace.requests[r];
    const uint32_t tick = RamTier::TickOf(trace.times_ms[r] * kMillisecond + kSecond);
    tier.AdvanceTo(tick);
    tier.SweepExpired(1024);
    blocks += chain.size();
    for (size_t i = 0; i < chain.size() && seen[chain[i]]; ++i) ++ideal;
    size_t hit = 0;
    for (; hit < chain.size(); ++hit) {
      const SlotId slot = tier.Find(hashes[chain[hit]], {});
      if (slot == kNoSlot || tier.Judge(slot, 0, tier.FindLayout({}), kPart) != PartResult::kOk) break;
    }
    hits += hit;
    for (size_t i = chain.size(); i-- > 0;) {
      seen[chain[i]] = true;
      const SlotId there = tier.Find(hashes[chain[i]], {});
      if (there != kNoSlot && !tier.IsExpired(tier.record(there))) {
        tier.Touch(there, tick);
        continue;
      }
      SlotId slot = kNoSlot;
      if (there != kNoSlot) tier.Expire(there);
      CISTERN_CHECK(tier.Reserve(kPart, tick, slot, tier.holders().Number(0, retention)) == PartResult::kOk);
      CISTERN_CHECK(tier.Publish(slot, {.block = {.hash = hashes[chain[i]]}, .coord = {}}, {}, kPart, 0, 0,
                                 tick) == PartResult::kOk);
    }
  }
  EXPECT_EQ(counters.evicted_parts, 0u);
  const auto all = static_cast<double>(blocks);
  return {static_cast<double>(ideal) / all, static_cast<double>(hits) / all};
}

// Conversations that grow a few blocks a turn, with pauses around the time to live: for machines without
// traces.
ReplayTrace MadeUpTrace() {
  Random random(20301);
  std::vector<std::pair<int64_t, std::vector<uint32_t>>> turns;
  uint32_t next_id = 0;
  for (int conversation = 0; conversation < 300; ++conversation) {
    std::vector<uint32_t> chain;
    auto at = static_cast<int64_t>(random.Below(3600 * 1000));
    for (uint64_t turn = 1 + random.Below(8); turn > 0; --turn) {
      for (uint64_t more = 1 + random.Below(4); more > 0; --more) chain.push_back(next_id++);
      turns.emplace_back(at, chain);
      at += static_cast<int64_t>(1000 * (10 << random.Below(7)) + random.Below(20'000));  // 10 s to 11 min.
    }
  }
  std::stable_sort(turns.begin(), turns.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  TraceIds requests;
  std::vector<int64_t> times;
  for (auto& [time, chain] : turns) {
    requests.push_back(std::move(chain));
    times.push_back(time);
  }
  return MakeReplayTrace(requests, times);
}

TEST(TtlTraces, MadeUpConversationsKeepWhatAnIndependentModelSays) {
  const ReplayTrace trace = MadeUpTrace();
  const Shares sliding = Replay(trace, {.ttl_s = kTtlSeconds, .sliding = true});
  const Shares fixed = Replay(trace, {.ttl_s = kTtlSeconds});
  const double model = ReplaySlidingTtl(trace, kTtlSeconds * 1000).HitRatio();
  EXPECT_NEAR(sliding.kept, model, .002);
  EXPECT_LT(model, .95 * sliding.ideal) << "nothing ended";
  EXPECT_GT(model, .3 * sliding.ideal) << "all ended";
  EXPECT_LT(fixed.kept, sliding.kept);
}

struct Bar {
  const char* file;
  double share;
};
constexpr Bar kBars[] = {
    {"conversation_trace.jsonl", .79}, {"synthetic_trace.jsonl", .91}, {"agentic_a_512.jsonl.zst", .95}};

TEST(TtlTraces, FiveSlidingMinutesKeepTheShareThatTheTracesSay) {
  for (const Bar& bar : kBars) {
    const std::string path = TraceFolder() + "/" + bar.file;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no trace " << path;
    const auto trace = LoadReplayTrace(path, [](uint64_t, std::string_view) {});
    ASSERT_TRUE(trace.ok());
    const Shares sliding = Replay(*trace, {.ttl_s = kTtlSeconds, .sliding = true});
    const Shares fixed = Replay(*trace, {.ttl_s = kTtlSeconds});
    std::printf("%s: ideal %.4f, 5 min sliding %.4f (%.1f %% of it), fixed %.4f\n", bar.file, sliding.ideal,
                sliding.kept, 100 * sliding.kept / sliding.ideal, fixed.kept);
    EXPECT_NEAR(sliding.kept / sliding.ideal, bar.share, .006) << bar.file;
    // An independent model of the same rule, without slots, sweeps or coarse time, which ends parts late by a
    // moment and never early.
    const double model = ReplaySlidingTtl(*trace, kTtlSeconds * 1000).HitRatio();
    EXPECT_GE(sliding.kept, model) << bar.file;
    EXPECT_NEAR(sliding.kept, model, .0005) << bar.file;
    EXPECT_LT(fixed.kept, sliding.kept);
  }
}

}  // namespace
}  // namespace cistern
