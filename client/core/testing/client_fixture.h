#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/core/client_core.h"
#include "client/core/testing/fake_transport.h"
#include "client/window.h"
#include "core/clock.h"
#include "core/placement.h"
#include "core/random.h"

namespace cistern {

// A ClientCore over fake nodes, with chains, pages and canaries around them. Seed printed when a test fails.
class ClientFixture : public ::testing::Test {
 protected:
  static constexpr uint32_t kPartBytes = 4096;
  static constexpr std::byte kCanary{0xEE};

  ClientFixture() : random_(seed_) {
    options_.negative_ttl = kSecond;
    RecordProperty("seed", static_cast<int>(seed_));
  }

  void AddNode(const std::string& id, uint64_t incarnation = 1) {
    nodes_.push_back(std::make_unique<FakeNode>());
    nodes_.back()->id = id;
    nodes_.back()->incarnation = incarnation;
    transport_.nodes["sim:" + id] = nodes_.back().get();
    map_.nodes.push_back({id, incarnation, NodeState::kActive, 1, {{"sim:" + id, "", ""}}});
  }
  void Start() {
    core_ = std::make_unique<ClientCore>(options_, clock_, transport_, random_);
    core_->SetCredentials("ticket", {}, {});
    map_.epoch = 1;
    core_->SetMap(map_);
  }
  std::vector<BlockKey> MakeKeys(uint32_t blocks) {
    std::vector<BlockKey> keys(blocks);
    for (BlockKey& key : keys) {
      for (size_t i = 0; i < 32; i += 8) {
        const uint64_t v = random_.Next();
        std::memcpy(key.hash.bytes.data() + i, &v, 8);
      }
      key.fingerprint = random_.Next();
    }
    return keys;
  }
  // Deterministic bytes of a part.
  std::vector<std::byte> BytesOf(const BlockKey& key, PartCoord coord) const {
    std::vector<std::byte> bytes(part_bytes_);
    Random r(key.hash.Prefix64() ^ coord.Packed());
    for (size_t i = 0; i < bytes.size(); i += 8) {
      const uint64_t v = r.Next();
      std::memcpy(bytes.data() + i, &v, 8);
    }
    return bytes;
  }
  FakeNode& OwnerOf(const std::vector<BlockKey>& keys, uint32_t block) {
    const Placement placement(map_);
    const BlockHash& run_key = keys[RunFirst(block, map_.run_blocks_cap)].hash;
    const std::string& id = placement.owners().owners[placement.Owner(run_key)].id;
    for (const auto& node : nodes_) {
      if (node->id == id && !retired_.count(node.get())) return *node;
    }
    return *nodes_.front();
  }
  void Fill(const std::vector<BlockKey>& keys, uint32_t blocks) {
    for (uint32_t b = 0; b < blocks; ++b) {
      for (const PartCoord& coord : coords_) OwnerOf(keys, b).Add(keys[b], coord, BytesOf(keys[b], coord));
    }
  }
  CallSpec Spec(const std::vector<BlockKey>& keys, Nanos deadline = 0) {
    return {.chain = {.layout = {}, .part_bytes = part_bytes_, .blocks = keys, .keep = {}},
            .coords = coords_,
            .deadline = deadline};
  }

  // Pages with a canary before and after each.
  struct Pages {
    std::vector<std::vector<std::byte>> memory;
    std::vector<Segment> segments;
    std::vector<uint32_t> ends;
    PageView view() const { return {segments, ends}; }
    std::byte* page(size_t i) { return memory[i].data() + 64; }
  };
  Pages MakePages(uint32_t count) {
    Pages pages;
    const size_t bytes = part_bytes_ * coords_.size();
    for (uint32_t i = 0; i < count; ++i) {
      pages.memory.emplace_back(bytes + 128, kCanary);
      // Two uneven segments: scatter is the normal case.
      pages.segments.push_back({pages.memory.back().data() + 64, 1000});
      pages.segments.push_back({pages.memory.back().data() + 64 + 1000, bytes - 1000});
      pages.ends.push_back(static_cast<uint32_t>(pages.segments.size()));
    }
    return pages;
  }
  bool Right(Pages& pages, size_t page, const BlockKey& key) const {
    for (size_t c = 0; c < coords_.size(); ++c) {
      const auto want = BytesOf(key, coords_[c]);
      if (std::memcmp(pages.page(page) + c * part_bytes_, want.data(), part_bytes_) != 0) return false;
    }
    return true;
  }
  static bool CanariesWhole(const Pages& pages) {
    for (const auto& m : pages.memory) {
      for (size_t i = 0; i < 64; ++i) {
        if (m[i] != kCanary || m[m.size() - 1 - i] != kCanary) return false;
      }
    }
    return true;
  }

  // Polls until nothing moves, advancing no time.
  void Settle() {
    for (int i = 0; i < 100000 && core_->Poll(); ++i) {
    }
  }
  // Polls, moving time to the next wake-up, until `done` or the time is up.
  bool RunUntil(const bool& done, Nanos limit = 20 * kSecond) {
    const Nanos end = clock_.Now() + limit;
    while (!done && clock_.Now() < end) {
      if (core_->Poll()) continue;
      const Nanos next = core_->NextWake();
      clock_.Set(std::max(clock_.Now() + kMicrosecond, std::min(next, end)));
    }
    return done;
  }

  struct LoadResult {
    bool done = false;
    int calls = 0;
    absl::Status status;
    uint32_t hit = 0;
    uint64_t bytes = 0;
    std::vector<PartResult> pages;
    LoadDone Take() {
      return [this](const LoadOutcome& o) {
        ++calls;
        done = true;
        status = o.status;
        hit = o.hit_blocks;
        bytes = o.bytes;
        pages.assign(o.pages.begin(), o.pages.end());
      };
    }
  };
  struct StoreResult {
    bool done = false;
    absl::Status status;
    uint64_t bytes = 0;
    std::vector<PartResult> pages;
    StoreDone Take() {
      return [this](const StoreOutcome& o) {
        done = true;
        status = o.status;
        bytes = o.bytes;
        pages.assign(o.pages.begin(), o.pages.end());
      };
    }
  };
  LoadResult Fetch(const std::vector<BlockKey>& keys, Pages& pages, Nanos deadline = 0) {
    LoadResult result;
    core_->Fetch(Spec(keys, deadline), pages.view(), result.Take());
    EXPECT_TRUE(RunUntil(result.done));
    return result;
  }
  PlanOutcome Plan(const std::vector<BlockKey>& keys) {
    PlanOutcome result;
    bool done = false;
    core_->Plan(Spec(keys), [&](const PlanOutcome& o) {
      result = o;
      done = true;
    });
    EXPECT_TRUE(RunUntil(done));
    return result;
  }
  LookupOutcome Lookup(const std::vector<BlockKey>& keys, Nanos deadline = 0) {
    LookupOutcome result;
    bool done = false;
    core_->Lookup(Spec(keys, deadline), [&](const LookupOutcome& o) {
      result = o;
      done = true;
    });
    EXPECT_TRUE(RunUntil(done));
    return result;
  }
  LoadResult Load(PlanHandle plan, uint32_t first, Pages& pages) {
    LoadResult result;
    core_->Load(plan, first, pages.view(), {}, 0, result.Take());
    EXPECT_TRUE(RunUntil(result.done));
    return result;
  }
  uint64_t Counter(const std::string& name) const {
    for (const auto& [key, value] : core_->Counters()) {
      if (key == name) return value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }

  uint32_t part_bytes_ = kPartBytes;
  const uint64_t seed_ = 20240607;
  Random random_;
  SimClock clock_;
  FakeTransport transport_;
  ClientCoreOptions options_;
  ClusterMap map_;
  std::vector<std::unique_ptr<FakeNode>> nodes_;
  std::set<FakeNode*> retired_;
  std::vector<PartCoord> coords_ = {{0, 0, 0}, {0, 1, 0}};
  std::unique_ptr<ClientCore> core_;
};

}  // namespace cistern
