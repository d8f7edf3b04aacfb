#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cache_node/disk/disk_tier.h"
#include "cache_node/disk/memory_disk.h"
#include "cache_node/shard_test_util.h"

namespace cistern {

inline constexpr uint32_t kPart = 256 << 10;
inline constexpr uint64_t kMiB = 1u << 20;
inline constexpr uint64_t kRam = 8 * kMiB;  // 30 parts and their trailers' slabs.

// A shard on simulated clocks, alone or over a disk in memory, which may be killed and started again.
class ShardFixture : public ::testing::Test {
 protected:
  ShardFixture() { Start(); }

  void Start(uint64_t ram = kRam) {
    world.reset();
    world = std::make_unique<ShardWorld>(ram);
    peer = world->Connect();
  }
  // With a disk, that a later start finds again. The boot clock begins anew; the wall clock goes on.
  void StartWithDisk(uint64_t ram = kRam) {
    Start(ram);
    AttachDisk();
    Settle();
  }
  void AttachDisk() {
    DiskTierOptions options = disk_options;
    options.log.capacity_bytes = uint64_t{4} * kExtentBytes;
    options.log.ring_bytes = kWriteRingMin;
    options.unix_now = [this] { return unix_now; };
    warnings.clear();
    options.log.log = [this](bool warn, const std::string& line) {
      if (warn) warnings.push_back(line);
    };
    auto made = std::make_unique<MemoryDisk>(files, random);
    memory_disk = made.get();
    auto tier = DiskTier::Open(options, std::move(made),
                               std::make_unique<Manifest>(MakeMemoryManifest(values), values, false),
                               world->clock, kSeed);
    CISTERN_CHECK(tier.ok());
    world->shard->AttachDisk(*std::move(tier));
  }
  DiskTier& disk() { return *world->shard->disk(); }
  RamTier& ram() { return world->shard->ram(); }
  void Turn() {
    world->shard->Poll();
    world->clock.Advance(kMillisecond / 2);
  }
  void Turns(int count) {
    for (int i = 0; i < count; ++i) Turn();
  }
  // Until all is on disk that should be.
  void Settle() {
    for (int i = 0; i < 20'000; ++i) {
      Turn();
      const ExtentWriter& writer = disk().log().writer();
      if (!disk().log().recovering() && disk().waiting_bytes() == 0 && writer.appended() == writer.ended())
        return;
    }
    CISTERN_CHECK(false);
  }
  void Pass(uint32_t seconds) {
    world->clock.Advance(Nanos{seconds} * kSecond);
    unix_now += seconds;
    Turns(20);
  }
  ChainRequest Kept(uint32_t blocks, Retention retention) {
    ChainRequest chain = world->Chain(world->Blocks(blocks), kPart);
    chain.retention = retention;
    return chain;
  }
  ChainRequest Asked(ChainRequest chain) {
    chain.retention = {};
    return chain;
  }
  uint32_t Store(const ChainRequest& chain) {
    uint32_t ok = 0;
    for (const PartResult result : world->Store(peer, chain)) ok += result == PartResult::kOk;
    return ok;
  }
  uint32_t Hits(const ChainRequest& chain) { return world->Lookup(peer, Asked(chain)).hit_blocks; }
  MissReason Why(const ChainRequest& chain) {
    return world->Lookup(peer, Asked(chain), kFlagDetail).detail.why;
  }
  // A plan, that brings parts from where they are, as plan_id.
  PlanReply Plan(ChainRequest plan) {
    plan.plan_id = ++plan_id;
    plan.ttl_ms = 2000;
    world->Ask(peer, FrameType::kPlan, plan);
    for (int i = 0; i < 20'000 && !world->HasReply(FrameType::kPlanReply); ++i) Turn();
    return world->Take<PlanReply>(FrameType::kPlanReply);
  }
  // Its parts are checked byte by byte and released. Blocks that hit.
  uint32_t Use(const ChainRequest& chain) {
    const PlanReply reply = Plan(Asked(chain));
    for (size_t i = 0; i < reply.parts.size(); ++i) {
      EXPECT_TRUE(world->Verify(reply.parts[i], chain.blocks[i])) << i;
      const auto bytes = ShardWorld::PartBytes(chain.blocks[i], {}, chain.part_bytes);
      const std::byte* here = world->shard->arena().data() + reply.parts[i].offset;
      EXPECT_EQ(std::memcmp(here, bytes.data(), bytes.size()), 0) << i;
    }
    world->Release(peer, plan_id);
    Turn();
    return reply.hit_blocks;
  }
  uint64_t Counter(const std::string& name) const { return world->shard->Stats().counters.at(name); }
  PeerId ConnectAs(const std::string& tenant) {
    Hello hello = world->MakeHello();
    Ticket ticket;
    ticket.cluster = world->cluster;
    ticket.rights = kAllRights;
    ticket.tenant = tenant;
    ticket.expires_unix_s = world->unix_now + 3600;
    hello.ticket = SealTicket(ticket, world->key);
    auto made = world->transport.Accept(hello, false, nullptr);
    CISTERN_CHECK(made.ok());
    return *made;
  }
  QuotaReply Quota(const QuotaRequest& request) {
    world->Ask(peer, FrameType::kQuota, request);
    return world->Take<QuotaReply>(FrameType::kQuotaReply);
  }
  static QuotaReply::Row RowOf(const QuotaReply& reply, const std::string& tenant) {
    for (const QuotaReply::Row& row : reply.rows) {
      if (row.tenant == tenant) return row;
    }
    return {};
  }

  static constexpr uint64_t kSeed = 20261130;
  Random random{kSeed};
  std::shared_ptr<MemoryFiles> files = std::make_shared<MemoryFiles>();
  ManifestValues values;
  DiskTierOptions disk_options;  // Its sizes, clock and log are the fixture's.
  MemoryDisk* memory_disk = nullptr;
  std::vector<std::string> warnings;  // Since the start.
  int64_t unix_now = 1'800'000'000;
  std::unique_ptr<ShardWorld> world;
  PeerId peer = 0;
  uint64_t plan_id = 0;
};

}  // namespace cistern
