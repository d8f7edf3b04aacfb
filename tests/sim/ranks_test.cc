// Ranks of one request that ask for its hit at different moments, while others make room (F50).
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cache_node/node_shard.h"
#include "client/core/group_plan.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/placement.h"
#include "transport/loopback_transport.h"

namespace cistern {
namespace {

constexpr uint32_t kRanks = 8;
constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kChainBlocks = 16;
constexpr uint32_t kChains = 40;  // A third of them fits into the nodes.
constexpr uint32_t kNodes = 2;

layout::Group GroupOf(const char* name, layout::Family family, uint32_t elements) {
  layout::Plane plane;
  plane.name = name;
  plane.dtype = "int8";
  plane.heads = kRanks;
  plane.elements = elements;
  plane.shard = layout::Shard::kHead;
  plane.scale_rule = "none";
  layout::Segment segment;
  segment.name = name;
  segment.layers = {0};
  segment.tokens_per_row = family == layout::Family::kTailState ? 0 : 1;
  segment.planes = {plane};
  layout::Group group;
  group.name = name;
  group.family = family;
  group.slices = kRanks;
  group.segments = {segment};
  return group;
}
layout::Layout Hybrid() {
  layout::Layout out;
  out.unit_tokens = out.align_tokens = out.block_tokens = kBlockTokens;
  out.groups = {GroupOf("kv", layout::Family::kHistory, 32),
                GroupOf("state", layout::Family::kTailState, 512)};
  return out;
}

// Two nodes, eight ranks and one more engine that fills the memory, on one network and clock.
class RanksOfOneRequest : public ::testing::Test {
 protected:
  struct Node {
    std::unique_ptr<LoopbackTransport> transport;
    std::unique_ptr<NodeShard> shard;
  };
  struct Engine {
    std::unique_ptr<LoopbackTransport> transport;
    std::unique_ptr<ClientCore> core;
  };
  struct Rank {
    Nanos begins = 0;
    bool begun = false;
    bool done = false;
    GroupPlanOutcome out;
    uint32_t loads_open = 0;
    std::vector<std::byte> history, tail;
  };

  RanksOfOneRequest() : network_(clock_, kSeed), random_(kSeed) {
    RecordProperty("seed", kSeed);
    EXPECT_TRUE(layout::Validate(Hybrid()).ok()) << layout::Validate(Hybrid());
    layout_ = MakeGroupLayout(Hybrid());
    map_.epoch = 1;
    for (uint32_t i = 0; i < kNodes; ++i) AddNode("node-" + std::to_string(i + 1));
    for (uint32_t i = 0; i <= kRanks; ++i) AddEngine("engine-" + std::to_string(i), i % 3 != 0);
    for (std::vector<BlockKey>& chain : chains_) {
      chain.resize(kChainBlocks);
      for (BlockKey& key : chain) {
        for (size_t at = 0; at < 32; at += 8) StoreLe<uint64_t>(key.hash.bytes.data() + at, random_.Next());
        key.fingerprint = random_.Next();
      }
    }
  }
  ~RanksOfOneRequest() override {
    engines_.clear();
    for (Node& node : nodes_) node.shard.reset();
  }

  void AddNode(const std::string& id) {
    Node node;
    LoopbackOptions loopback;
    loopback.host = id;
    loopback.listen = {id};
    node.transport = std::make_unique<LoopbackTransport>(network_, loopback);
    NodeShardOptions options;
    options.node_id = id;
    options.ram_bytes = 8u << 20;  // A slab for the history, one for the states.
    options.cluster_key = key_;
    options.cluster = cluster_;
    options.incarnation = 7;
    options.unix_now = [] { return int64_t{1'800'000'000}; };
    auto made = NodeShard::Create(std::move(options), clock_, *node.transport, random_);
    ASSERT_TRUE(made.ok()) << made.status();
    node.shard = *std::move(made);
    map_.nodes.push_back({id, 7, NodeState::kActive, 1, {{"sim:" + id, "", ""}}});
    nodes_.push_back(std::move(node));
  }
  void AddEngine(const std::string& host, bool one_sided) {
    Engine engine;
    LoopbackOptions loopback;
    loopback.host = host;
    loopback.one_sided = one_sided;
    engine.transport = std::make_unique<LoopbackTransport>(network_, loopback);
    engine.core = std::make_unique<ClientCore>(ClientCoreOptions{}, clock_, *engine.transport, random_);
    Ticket ticket;
    ticket.cluster = cluster_;
    ticket.rights = kRightRead | kRightWrite;
    ticket.expires_unix_s = 1'800'000'000 + 360'000;
    engine.core->SetCredentials(SealTicket(ticket, key_), {}, cluster_);
    engine.core->SetMap(map_);
    engines_.push_back(std::move(engine));
  }

  static void Fill(const BlockKey& key, const StoredParts& parts, std::vector<std::byte>& page) {
    page.clear();
    for (size_t i = 0; i < parts.coords.size(); ++i) {
      Random bytes(key.hash.Prefix64() ^ parts.coords[i].Packed());
      for (uint32_t b = 0; b < parts.bytes[i]; ++b) page.push_back(static_cast<std::byte>(bytes.Next()));
    }
  }
  ChainView View(const std::vector<BlockKey>& chain) const {
    return {.layout = layout_->id, .part_bytes = 0, .blocks = chain, .keep = {}};
  }

  // The other engine stores a chain as far as it likes, with a tail somewhere.
  void StoreSome(const std::vector<BlockKey>& chain) {
    const auto blocks = static_cast<uint32_t>(1 + random_.Below(kChainBlocks));
    const StoredParts& parts = layout_->sets[0].parts;
    auto memory = std::make_shared<std::vector<std::vector<std::byte>>>(blocks + 1);
    std::vector<ConstSegment> segments;
    std::vector<uint32_t> ends;
    for (uint32_t i = 0; i < blocks; ++i) {
      Fill(chain[i], parts, (*memory)[i]);
      segments.push_back({(*memory)[i].data(), (*memory)[i].size()});
      ends.push_back(i + 1);
    }
    CallSpec spec;
    spec.chain = View(chain);
    spec.coords = parts.coords;
    spec.coord_bytes = parts.bytes;
    ClientCore& core = *engines_[kRanks].core;
    ++stores_open_;
    core.Store(spec, 0, {segments, ends}, [this, memory](const StoreOutcome&) { --stores_open_; });
    const StoredParts tail = layout_->TailAt(uint64_t{blocks} * kBlockTokens);
    Fill(chain[blocks - 1], tail, memory->back());
    spec.chain.blocks = spec.chain.blocks.subspan(0, blocks);
    spec.coords = tail.coords;
    spec.coord_bytes = tail.bytes;
    spec.tail_parts = static_cast<uint32_t>(tail.coords.size());
    const ConstSegment segment{memory->back().data(), memory->back().size()};
    const uint32_t end = 1;
    ++stores_open_;
    core.Store(spec, blocks - 1, {{&segment, 1}, {&end, 1}},
               [this, memory](const StoreOutcome&) { --stores_open_; });
  }

  void Ask(uint32_t r, const std::vector<BlockKey>& chain, const BlockHash& request) {
    Rank& rank = ranks_[r];
    rank.begun = true;
    GroupPlanSpec spec;
    spec.chain = View(chain);
    spec.layout = layout_;
    spec.max_tokens = kChainBlocks * kBlockTokens;
    spec.request = request;
    PlanGroups(*engines_[r].core, clock_, std::move(spec), [&rank](GroupPlanOutcome out) {
      rank.out = std::move(out);
      rank.done = true;
    });
  }
  // What the hit promises: this rank's slice of the last block, and of the tail.
  void Load(uint32_t r, const std::vector<BlockKey>& chain) {
    Rank& rank = ranks_[r];
    const uint32_t last = static_cast<uint32_t>(rank.out.hit.tokens / kBlockTokens) - 1;
    const auto load = [&](PlanHandle plan, uint8_t group, uint32_t bytes, std::vector<std::byte>& page) {
      page.assign(bytes, std::byte{0xdb});
      const Segment segment{page.data(), page.size()};
      const uint32_t end = 1;
      const PartCoord coord{group, static_cast<uint16_t>(r), 0};
      ++rank.loads_open;
      engines_[r].core->Load(plan, last, {{&segment, 1}, {&end, 1}}, {&coord, 1}, 0,
                             [&rank, coord, bytes, &page, key = chain[last]](const LoadOutcome& out) {
                               --rank.loads_open;
                               ASSERT_EQ(out.pages.size(), 1u) << out.status;
                               EXPECT_EQ(out.pages[0], PartResult::kOk);
                               std::vector<std::byte> want;
                               Fill(key, {.coords = {coord}, .bytes = {bytes}}, want);
                               EXPECT_EQ(page, want);
                             });
    };
    load(rank.out.history.front(), 0, kBlockTokens * 32, rank.history);
    load(rank.out.tail, 1, 512, rank.tail);
  }

  bool PollAll() {
    bool did = network_.Route();
    const Nanos now = clock_.Now();
    for (Node& node : nodes_) {
      if (node.transport->HasWork() || node.shard->NextWake() <= now) did |= node.shard->Poll();
    }
    for (Engine& engine : engines_) {
      if (engine.transport->HasWork() || engine.core->NextWake() <= now) did |= engine.core->Poll();
    }
    return did;
  }
  // Moves the world on by one event, at most to `until`.
  void Step(Nanos until) {
    if (PollAll()) return;
    Nanos next = std::min(until, network_.NextEventAt());
    for (Node& node : nodes_) next = std::min(next, node.shard->NextWake());
    for (Engine& engine : engines_) next = std::min(next, engine.core->NextWake());
    clock_.Set(std::max(next, clock_.Now() + 1));
  }

  // True when the request hit.
  bool Round(uint64_t round) {
    const std::vector<BlockKey>& chain = chains_[random_.Below(kChains)];
    BlockHash request;
    StoreLe<uint64_t>(request.bytes.data(), round);
    if (random_.Chance(0.5)) StoreSome(chain);
    for (Rank& rank : ranks_) {
      rank = {};
      rank.begins = clock_.Now() + static_cast<Nanos>(random_.Below(3 * kMillisecond));
    }
    uint32_t released = 0;
    std::vector<Nanos> lets_go(kRanks, kNever);
    while (released < kRanks) {
      const Nanos now = clock_.Now();
      Nanos next = now + kMillisecond;
      for (uint32_t r = 0; r < kRanks; ++r) {
        Rank& rank = ranks_[r];
        if (!rank.begun && rank.begins <= now) Ask(r, chain, request);
        if (!rank.begun) next = std::min(next, rank.begins);
        if (rank.done && lets_go[r] == kNever) {
          EXPECT_FALSE(rank.out.lost) << "rank " << r << " of round " << round;
          if (rank.out.hit.tokens != 0 && !rank.out.lost) Load(r, chain);
          lets_go[r] = now + static_cast<Nanos>(random_.Below(2 * kMillisecond));
        }
        if (rank.loads_open == 0 && lets_go[r] <= now) {
          ReleaseGroups(*engines_[r].core, rank.out, chain[0].hash, request, kRanks);
          lets_go[r] = kNever - 1;
          ++released;
        }
      }
      if (random_.Chance(0.05) && stores_open_ < 8) StoreSome(chains_[random_.Below(kChains)]);
      Step(next);
    }
    for (const Rank& rank : ranks_) {
      EXPECT_EQ(rank.out.hit.tokens, ranks_[0].out.hit.tokens) << "round " << round;
    }
    return ranks_[0].out.hit.tokens != 0;
  }

  static constexpr uint64_t kSeed = 50;
  SimClock clock_;
  LoopbackNetwork network_;
  Random random_;
  ClusterKey key_ = ClusterKey::Generate();
  ClusterId cluster_{.bytes = {1, 2, 3, 4}};
  ClusterMap map_;
  std::shared_ptr<const GroupLayout> layout_;
  std::vector<Node> nodes_;
  std::vector<Engine> engines_;
  std::vector<std::vector<BlockKey>> chains_ = std::vector<std::vector<BlockKey>>(kChains);
  std::vector<Rank> ranks_ = std::vector<Rank>(kRanks);
  uint32_t stores_open_ = 0;
};

TEST_F(RanksOfOneRequest, F50_GetOneLengthWhateverIsEvictedMeanwhile) {
  const char* scale = std::getenv("CISTERN_SIM_SEEDS");  // Set where a sanitizer makes all slow.
  const uint64_t rounds = scale != nullptr ? 1000 : 10000;
  uint64_t hits = 0;
  for (uint64_t round = 0; round < rounds && !HasFailure(); ++round) hits += Round(round);
  uint64_t evicted = 0;
  for (const Node& node : nodes_) evicted += node.shard->counters().evicted_parts;
  EXPECT_GT(hits, rounds / 10);
  EXPECT_LT(hits, rounds);
  EXPECT_GT(evicted, rounds) << "nothing had to make room";
}

}  // namespace
}  // namespace cistern
