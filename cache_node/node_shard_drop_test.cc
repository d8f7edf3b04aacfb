// Drops go on in turns: what a turn does, and what others may do between them.
#include <algorithm>
#include <utility>

#include "cache_node/shard_fixture.h"

namespace cistern {
namespace {

constexpr uint32_t kSmall = 512;

class NodeShardDrop : public ShardFixture {
 protected:
  // Some thousand blocks that nobody has, so that it takes turns, and then those of the chain.
  DropRequest Long(const ChainRequest& chain) {
    DropRequest drop;
    for (const BlockKey& block : world->Blocks(8 * kDropLooksPerTurn)) drop.blocks.push_back(block.hash);
    for (const BlockKey& block : chain.blocks) drop.blocks.push_back(block.hash);
    return drop;
  }
  uint64_t Ask(PeerId from, FrameType type, const auto& message) {
    world->Ask(from, type, message);
    return world->last_request;
  }
  // Where among all that was sent; none: not answered.
  std::optional<size_t> Answer(uint64_t request) const {
    const auto& sent = world->transport.sent;
    const auto at =
        std::find_if(sent.begin(), sent.end(), [&](const auto& one) { return one.request_id == request; });
    return at == sent.end() ? std::nullopt : std::optional<size_t>(at - sent.begin());
  }
  FrameType TypeOf(uint64_t request) const { return world->transport.sent.at(Answer(request).value()).type; }
  int TurnsUntil(uint64_t request) {
    int turns = 0;
    for (; turns < 20'000 && !Answer(request).has_value(); ++turns) Turn();
    return turns;
  }
  // Unless the shard has the offer wait.
  void StoreAs(PeerId from, const ChainRequest& chain) {
    world->Ask(from, FrameType::kOffer, chain);
    if (!world->HasReply(FrameType::kOfferReply)) return;
    std::vector<std::byte> bytes;
    std::vector<size_t> which;
    const PutRequest put =
        world->PutFor(chain, world->Take<OfferReply>(FrameType::kOfferReply), bytes, which);
    if (!which.empty()) world->Ask(from, FrameType::kPut, put, 0, bytes);
  }
  template <typename Reply>
  Reply Take(uint64_t request, FrameType type) {
    const uint64_t last = std::exchange(world->last_request, request);
    const Reply reply = world->Take<Reply>(type);
    world->last_request = last;
    return reply;
  }
  DropReply Dropped(uint64_t request) { return Take<DropReply>(request, FrameType::kDropReply); }
};

TEST_F(NodeShardDrop, ATurnAsksForSoManyPartsAndNoMore) {
  const ChainRequest chain =
      world->Chain(world->Blocks(256), kSmall, {{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 3, 0}});
  ASSERT_EQ(Store(chain), 1024u);
  const PeerId other = world->Connect();
  const uint64_t drop = Ask(peer, FrameType::kDrop, Long(chain));
  int turns = 0;
  uint64_t most = 0;
  for (; turns < 20'000 && !Answer(drop).has_value(); ++turns) {
    ASSERT_TRUE(Answer(Ask(other, FrameType::kLookup, chain)).has_value()) << "others wait for no drop";
    const uint64_t before = ram().parts();
    world->shard->Poll();
    most = std::max(most, before - ram().parts());
  }
  EXPECT_LE(most, kDropLooksPerTurn / 4) << "what goes costs more than what is not there";
  EXPECT_GE(turns, 8 * 4) << "each block has four coordinates";
  EXPECT_EQ(Dropped(drop).dropped_parts, 1024u);
  EXPECT_EQ(Hits(chain), 0u);
}

// The peer's own frames have their order.
TEST_F(NodeShardDrop, WhatItsPeerSendsBehindItSeesAllOfItAndStoresWhatStays) {
  const ChainRequest chain = world->Chain(world->Blocks(2), kSmall),
                     more = world->Chain(world->Blocks(2), kSmall);
  ASSERT_EQ(Store(chain) + Store(more), 4u);
  const uint64_t first = Ask(peer, FrameType::kDrop, Long(chain));
  const uint64_t lookup = Ask(peer, FrameType::kLookup, chain);
  const uint64_t offer = Ask(peer, FrameType::kOffer, chain);
  const uint64_t second = Ask(peer, FrameType::kDrop, Long(more));
  const uint64_t last = Ask(peer, FrameType::kLookup, more);
  world->transport.DeliverRaw(peer, FrameType::kPing, 999'999, {});
  EXPECT_TRUE(Answer(999'999).has_value()) << "whether the shard lives is answered at once";
  EXPECT_FALSE(Answer(lookup).has_value());
  TurnsUntil(last);
  const uint64_t in_order[] = {first, lookup, offer, second, last};
  for (size_t i = 1; i < std::size(in_order); ++i)
    EXPECT_LT(Answer(in_order[i - 1]), Answer(in_order[i])) << i;
  EXPECT_EQ(Dropped(first).dropped_parts, 2u);
  EXPECT_EQ(Dropped(second).dropped_parts, 2u);
  for (const uint64_t asked : {lookup, last})
    EXPECT_EQ(Take<LookupReply>(asked, FrameType::kLookupReply).hit_blocks, 0u);
  const auto wanted = Take<OfferReply>(offer, FrameType::kOfferReply);
  std::vector<std::byte> bytes;
  std::vector<size_t> which;
  const PutRequest put = world->PutFor(chain, wanted, bytes, which);
  world->Ask(peer, FrameType::kPut, put, 0, bytes);
  EXPECT_EQ(which.size(), 2u) << "it is offered as what is not here";
  Turns(40);
  EXPECT_EQ(Hits(chain), 2u);
}

// What names a plan that waits behind a drop waits too: a release ends the lease, not its time.
TEST_F(NodeShardDrop, AReleaseOvertakesNoPlan) {
  const ChainRequest chain = world->Chain(world->Blocks(2), kSmall),
                     kept = world->Chain(world->Blocks(2), kSmall);
  ASSERT_EQ(Store(chain) + Store(kept), 4u);
  ChainRequest plan = kept;
  plan.ttl_ms = 2000;
  const auto ask_plan = [&](uint64_t id) {
    plan.plan_id = id;
    return Ask(peer, FrameType::kPlan, plan);
  };
  ask_plan(1);  // From before the drop.
  ASSERT_EQ(ram().leased_parts(), 2u);
  const uint64_t drop = Ask(peer, FrameType::kDrop, Long(chain));
  const uint64_t second = ask_plan(2), third = ask_plan(3);
  const uint64_t renew = Ask(peer, FrameType::kRenew, RenewRequest{.plan_id = 3, .ttl_ms = 2000});
  world->Release(peer, 1);
  EXPECT_EQ(ram().leased_parts(), 0u) << "what belongs to a plan from before goes on";
  world->Release(peer, 2);
  EXPECT_FALSE(Answer(renew).has_value());
  const uint64_t last = Ask(peer, FrameType::kLookup, kept);
  TurnsUntil(last);
  const uint64_t in_order[] = {drop, second, third, renew, last};
  for (size_t i = 1; i < std::size(in_order); ++i)
    EXPECT_LT(Answer(in_order[i - 1]), Answer(in_order[i])) << i;
  EXPECT_EQ(Take<RenewReply>(renew, FrameType::kRenewReply).result, PartResult::kOk);
  EXPECT_FALSE(world->shard->leases().FindPlan(peer, 2, world->clock.Now()).has_value());
  EXPECT_EQ(ram().leased_parts(), 2u);
  world->Release(peer, 3);
  EXPECT_EQ(ram().leased_parts(), 0u);
}

// Who is gone may be back, and store, before the rest of its drop came to it.
TEST_F(NodeShardDrop, EndsWithItsPeer) {
  const ChainRequest chain = world->Chain(world->Blocks(2), kSmall);
  ASSERT_EQ(Store(chain), 2u);
  Ask(peer, FrameType::kDrop, Long(chain));
  Ask(peer, FrameType::kDrop, Long(chain));
  world->transport.Kill(peer);
  EXPECT_EQ(world->shard->NextWake() == 0, false) << "nothing is left to do";
  peer = world->Connect();
  Turns(40);
  EXPECT_EQ(Hits(chain), 2u);
}

TEST_F(NodeShardDrop, WhatWaitsHasABound) {
  const ChainRequest chain = world->Chain(world->Blocks(1), kSmall);
  ASSERT_EQ(Store(chain), 1u);
  std::vector<uint64_t> drops;
  for (size_t i = 0; i <= kDropsMax; ++i)
    drops.push_back(Ask(world->Connect(), FrameType::kDrop, Long(chain)));
  ASSERT_TRUE(Answer(drops.back()).has_value());
  EXPECT_EQ(TypeOf(drops.back()), FrameType::kError);
  drops.pop_back();
  const PeerId waits = world->Connect();
  TurnsUntil(drops.front());
  std::vector<uint64_t> behind{Ask(waits, FrameType::kDrop, Long(chain))};
  for (size_t i = 0; i <= kBehindDropsMax; ++i) behind.push_back(Ask(waits, FrameType::kLookup, chain));
  ASSERT_TRUE(Answer(behind.back()).has_value());
  EXPECT_EQ(TypeOf(behind.back()), FrameType::kError);
  behind.pop_back();
  TurnsUntil(behind.back());
  for (const uint64_t drop : drops) EXPECT_EQ(TypeOf(drop), FrameType::kDropReply);
  for (size_t i = 1; i < behind.size(); ++i) ASSERT_EQ(TypeOf(behind[i]), FrameType::kLookupReply) << i;
}

// F04: between two turns RAM makes room and its parts go down, or come back up for a plan: a part that has
// not gone yet goes wherever it is, and one that has gone comes from nowhere.
TEST_F(NodeShardDrop, F04_WhatMovesBetweenTiersMeanwhileIsDroppedToo) {
  for (const bool write_through : {false, true}) {
    SCOPED_TRACE(write_through);
    disk_options.write_through = write_through;
    StartWithDisk();
    const PeerId other = world->Connect();
    ChainRequest coords = world->Chain(world->Blocks(1), kSmall);  // Asked for of every block from now on.
    for (uint16_t slice = 1; slice < 16; ++slice) coords.coords.push_back({.slice = slice});
    Store(coords);
    std::vector<ChainRequest> chains;
    for (int i = 0; i < 6; ++i) chains.push_back(world->Chain(world->Blocks(6), kPart));
    DropRequest drop;
    for (const ChainRequest& chain : chains) {
      ASSERT_EQ(Store(chain), 6u);
      Settle();
      const DropRequest one = Long(chain);
      drop.blocks.insert(drop.blocks.end(), one.blocks.begin() + 7 * kDropLooksPerTurn, one.blocks.end());
    }
    const uint64_t asked = Ask(peer, FrameType::kDrop, drop);
    for (int turn = 0; turn < 20'000 && !Answer(asked).has_value(); ++turn) {
      ChainRequest plan = chains[static_cast<size_t>(turn) % chains.size()];
      plan.plan_id = ++plan_id;
      plan.ttl_ms = 2000;
      world->Ask(other, FrameType::kPlan, plan);
      Turn();
      world->Release(other, plan_id);
      StoreAs(other, world->Chain(world->Blocks(1), kPart));
    }
    ASSERT_TRUE(Answer(asked).has_value());
    Settle();
    Turns(100);
    for (const ChainRequest& chain : chains) EXPECT_EQ(Use(chain), 0u);
    StartWithDisk();
    for (const ChainRequest& chain : chains) EXPECT_EQ(Use(chain), 0u);
  }
}

// All there is, on disk more than in RAM.
class NodeShardDropAll : public NodeShardDrop {
 protected:
  NodeShardDropAll() {
    StartWithDisk(2 * kRam);
    small = world->Chain(world->Blocks(256), kSmall, {{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 3, 0}});
    CISTERN_CHECK(Store(small) == 1024);
    Settle();
  }
  // So that its index has several pieces.
  void PutOnDisk(uint32_t records) {
    const std::vector<std::byte> bytes(kPartAlign, std::byte{7});
    for (uint32_t i = 0; i < records; ++i) {
      RecordHeader header;
      header.block = world->Blocks(1)[0];
      for (uint32_t part = 0; part < kPartsPerRecordMax; ++part)
        header.parts.push_back({.coord = PartCoord::Unpack(part),
                                .at = part * kPartAlign,
                                .length = kPartAlign,
                                .crc = Crc32c(bytes.data(), bytes.size())});
      const std::vector<const std::byte*> data(header.parts.size(), bytes.data());
      while (disk().log().Append(header, data) != DiskLog::Appended::kOk) Turn();
    }
    Settle();
  }
  uint64_t AskAll() { return Ask(peer, FrameType::kDrop, DropRequest{.all = true, .blocks = {}}); }
  ChainRequest small;
};

TEST_F(NodeShardDropAll, ATurnTakesSoMuchOfItAndNoMore) {
  constexpr uint32_t kRecords = 100;
  PutOnDisk(kRecords);
  const PeerId other = world->Connect();
  const auto on_disk = [&] { return disk().log().counters().durable_parts; };
  uint64_t in_ram = ram().parts(), below = on_disk(), most = 0, most_below = 0;
  ASSERT_EQ(below, 1024 + kRecords * uint64_t{kPartsPerRecordMax});
  const uint64_t drop = AskAll();
  int turns = 0;
  for (; turns < 1000; ++turns) {
    most = std::max(most, in_ram - ram().parts());
    most_below = std::max(most_below, below - on_disk());
    in_ram = ram().parts();
    below = on_disk();
    if (Answer(drop).has_value()) break;
    ASSERT_TRUE(Answer(Ask(other, FrameType::kLookup, small)).has_value()) << "others wait for no drop";
    Turn();
  }
  EXPECT_LE(most, kDropLooksPerTurn / kLooksOfADrop);
  EXPECT_LE(most_below, 3 * CellTable<DiskEntry>::kPieceCells);
  EXPECT_GE(turns, 6);
  EXPECT_EQ(Dropped(drop).dropped_parts, 2 * 1024 + kRecords * uint64_t{kPartsPerRecordMax});
  EXPECT_EQ(on_disk(), 0u);
  EXPECT_EQ(Store(small), 1024u) << "it takes parts again";
  Settle();
  StartWithDisk(2 * kRam);
  EXPECT_EQ(on_disk(), 1024u);
}

// F04: what moves between tiers meanwhile goes all the same.
TEST_F(NodeShardDropAll, F04_WhatMovesBetweenTiersMeanwhileIsDroppedToo) {
  for (const bool write_through : {false, true}) {
    SCOPED_TRACE(write_through);
    disk_options.write_through = write_through;
    world.reset();
    files->files.clear();
    values.clear();
    StartWithDisk(2 * kRam);
    const PeerId other = world->Connect();
    std::vector<ChainRequest> chains;
    for (int i = 0; i < 16; ++i) {
      chains.push_back(world->Chain(world->Blocks(6), kPart));
      ASSERT_EQ(Store(chains.back()), 6u);
      Settle();
    }
    ASSERT_GT(disk().log().counters().durable_parts, 0u);
    const auto move = [&](int i) {
      ChainRequest plan = chains[static_cast<size_t>(i) % chains.size()];
      plan.plan_id = ++plan_id;
      plan.ttl_ms = 2000;
      world->Ask(other, FrameType::kPlan, plan);
      StoreAs(other, world->Chain(world->Blocks(1), kPart));
    };
    for (int i = 0; i < 4; ++i) move(i);  // Under way when it begins.
    const ChainRequest more =
        world->Chain(world->Blocks(256), kSmall, {{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 3, 0}});
    Store(more);
    const uint64_t asked = AskAll();
    int turns = 0;
    for (; turns < 1000 && !Answer(asked).has_value(); ++turns) {
      move(turns);
      Turn();
      world->Release(other, plan_id);
    }
    EXPECT_GE(turns, 3);
    for (uint64_t id = 1; id <= plan_id; ++id) world->Release(other, id);
    Settle();
    Turns(100);
    for (const ChainRequest& chain : chains) EXPECT_EQ(Use(chain), 0u);
    StartWithDisk(2 * kRam);
    for (const ChainRequest& chain : chains) EXPECT_EQ(Use(chain), 0u);
  }
}

// F04: nor does anything come up from the disk into the slots that have had their turn.
TEST_F(NodeShardDropAll, F04_NothingComesUpMeanwhile) {
  const ChainRequest below = world->Chain(world->Blocks(8), kSmall);
  ASSERT_EQ(Store(below), 8u);
  Settle();
  for (const BlockKey& block : below.blocks) ASSERT_EQ(ram().DropPart(block.hash, {}).parts, 1u);
  const PeerId other = world->Connect();
  const uint64_t drop = AskAll();
  ChainRequest plan = below;
  plan.ttl_ms = 2000;
  for (int turn = 0; turn < 1000 && !Answer(drop).has_value(); ++turn) {
    plan.plan_id = ++plan_id;
    world->Ask(other, FrameType::kPlan, plan);
    Turn();
  }
  EXPECT_EQ(Dropped(drop).dropped_parts, 2 * 1024 + 8u);
  Turns(20);
  EXPECT_EQ(ram().parts(), 0u);
  EXPECT_EQ(Use(below), 0u);
}

// Who leaves ends it: what is still there is found, in RAM and on disk.
TEST_F(NodeShardDropAll, EndsWithItsPeer) {
  AskAll();
  ASSERT_LT(ram().parts(), 1024u);
  ASSERT_GT(ram().parts(), 0u);
  world->transport.Kill(peer);
  peer = world->Connect();
  EXPECT_EQ(Plan(small).hit_blocks, 256u) << "the disk has what went from RAM";
  PutOnDisk(100);
  const uint64_t again = AskAll();
  for (int i = 0; i < 1000 && disk().log().counters().durable_parts > 20'000; ++i) Turn();
  ASSERT_FALSE(Answer(again).has_value());
  world->transport.Kill(peer);
  peer = world->Connect();
  Turns(20);
  StartWithDisk(2 * kRam);
  EXPECT_EQ(disk().log().counters().durable_parts, 0u) << "what the disk had begun with is told";
}

}  // namespace
}  // namespace cistern
