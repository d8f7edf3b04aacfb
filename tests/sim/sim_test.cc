// Many seeds of the simulated cluster. A failure prints its seed and how to see its history.
//   CISTERN_SIM_SEEDS=N (how many), CISTERN_SIM_FIRST=N (from where)
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/sim/sim_cluster.h"

namespace cistern {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

SimReport RunSeed(uint64_t seed) {
  SimCluster cluster(DrawOptions(seed));
  return cluster.Run();
}

// Situations that the seeds together must have gone through, or the simulator has gone blind to them.
constexpr const char* kMustReach[] = {
    "evicted",                // Arenas were too small.
    "evicted_beside_leases",  // F15: eviction went round what readers held.
    "dropped_while_leased",   // F15: the admin's way.
    "slab_moved",
    "load_LEASE_EXPIRED",     // F17: the reader noticed by itself.
    "lease_expired_on_node",  // F13
    "load_OK",
    "fetch_OK",
    "fetch_MISS",
    "store_OK",
    "store_EXISTS",    // F20
    "store_NO_SPACE",  // F16
    "load_CORRUPT",
    "fetch_CORRUPT",
    "corrupt_put_refused",
    "load_STALE",      // F24
    "fetch_DEADLINE",  // F23
    "fetch_PEER_GONE",
    "fetch_CANCELLED",
    "breaker_opened",
    "peer_gone_reported",  // F32
    "old_owner_served",
    "put_abandoned",  // F19: its writer died.
    "put_expired",    // F19: its writer fell silent.
    "client_died_in_calls",
    "node_died_with_puts",
    "node_died_with_leases",
    "node_lost_silently",
    "node_frozen",
    "router_restarted",
    "client_fenced_a_peer",
    "lease_renewed",
    "put_from_window",
    "put_staged",
    "put_inline",
    "tail_stored",
    "tail_hit",
    "tail_miss",
    "history_beyond_its_tails",
    "tails_superseded",
    "stranded",
    "disk_stored",
    "disk_demoted",
    "disk_staged",
    "disk_staged_after_a_restart",
    "disk_recovered_after_a_power_cut",
    "disk_torn_tail",
    "disk_damage_found",
    "disk_degraded",
    "disk_full",
    "disk_slow",
    "manifest_lost",
    "bit_flipped_on_disk",
    "wall_clock_jumped",
    "clock_slowed",
    "peer_refused",
    "partition",
    "partition_one_way",
    "net_cancelled_mid_payload",
    "net_bad_frames",
    "net_parked",
    "net_twice",
};

TEST(Sim, EveryPageIsRightAndEveryCallEndsOverManySeeds) {
  const uint64_t first = FromEnvironment("CISTERN_SIM_FIRST", 1);
  const uint64_t seeds = FromEnvironment("CISTERN_SIM_SEEDS", 200);
  std::map<std::string, uint64_t> marks;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const SimReport report = RunSeed(seed);
    ASSERT_EQ(report.failure, "") << "seed " << seed << "; see: cistern-sim --seed " << seed;
    for (const auto& [name, times] : report.marks) marks[name] += times;
  }
  for (const auto& [name, times] : marks) std::printf("mark %-32s %lu\n", name.c_str(), times);
  if (seeds < 100) GTEST_SKIP() << "too few seeds to ask for every situation";
  for (const char* mark : kMustReach) EXPECT_GT(marks[mark], 0u) << "no seed reached: " << mark;
}

TEST(Sim, SameSeedGivesTheSameHistory) {
  for (const uint64_t seed : {1, 2, 5}) {
    const SimReport once = RunSeed(seed);
    const SimReport again = RunSeed(seed);
    EXPECT_EQ(once.digest, again.digest) << "seed " << seed;
    EXPECT_EQ(once.events, again.events) << "seed " << seed;
    EXPECT_GT(once.events, 1000u);
  }
}

TEST(Sim, OtherSeedsGiveOtherHistories) {
  std::set<uint64_t> digests;
  for (uint64_t seed = 1; seed <= 5; ++seed) digests.insert(RunSeed(seed).digest);
  EXPECT_EQ(digests.size(), 5u);
}

}  // namespace
}  // namespace cistern
