// Plans that are answered in parts: the first ones while the disk is still read for the others.
#include "cache_node/shard_fixture.h"

namespace cistern {
namespace {

class PlansInParts : public ShardFixture {
 protected:
  // `blocks` of one chain, on disk alone.
  ChainRequest OnDisk(uint32_t blocks) {
    StartWithDisk();
    const ChainRequest chain = Kept(blocks, {});
    CISTERN_CHECK(Store(chain) == blocks);
    Settle();
    StartWithDisk();
    CISTERN_CHECK(world->shard->ram().parts() == 0);
    return chain;
  }
  struct Answer {
    PlanReply reply;
    bool more = false;
  };
  Answer Ask(const ChainRequest& chain, uint32_t first, uint16_t flags) {
    ChainRequest rest = world->Chain({chain.blocks.begin() + first, chain.blocks.end()}, chain.part_bytes);
    rest.plan_id = ++plan_id;
    rest.ttl_ms = 2000;
    world->Ask(peer, FrameType::kPlan, rest, flags);
    for (int i = 0; i < 20'000 && !world->HasReply(FrameType::kPlanReply); ++i) Turn();
    Answer answer;
    answer.more = (world->ReplyFlags() & kFlagInParts) != 0;
    answer.reply = world->Take<PlanReply>(FrameType::kPlanReply);
    for (size_t i = 0; i < answer.reply.parts.size(); ++i)
      EXPECT_TRUE(world->Verify(answer.reply.parts[i], chain.blocks[first + i])) << i;
    world->Release(peer, plan_id);
    return answer;
  }
};

TEST_F(PlansInParts, TheFirstPartComesBeforeTheLastIsRead) {
  const ChainRequest chain = OnDisk(24);  // 6 MiB.
  const Answer first = Ask(chain, 0, kFlagInParts);
  EXPECT_TRUE(first.more);
  EXPECT_GT(first.reply.hit_blocks, 0u);
  EXPECT_LT(first.reply.hit_blocks, 24u);
  uint32_t have = first.reply.hit_blocks;
  int answers = 1;
  for (bool more = true; more; ++answers) {
    const Answer next = Ask(chain, have, kFlagInParts);
    ASSERT_GT(next.reply.hit_blocks, 0u);
    have += next.reply.hit_blocks;
    more = next.more;
  }
  EXPECT_EQ(have, 24u);
  EXPECT_GT(answers, 1);
  Settle();
  EXPECT_EQ(world->shard->ram().leased_parts(), 0u);
  EXPECT_EQ(world->shard->counters().hit_blocks, 24u);
  EXPECT_EQ(world->shard->counters().miss_blocks, 0u);
}

TEST_F(PlansInParts, WhoDoesNotTakePartsGetsAllAtOnce) {
  const ChainRequest chain = OnDisk(24);
  const Answer all = Ask(chain, 0, 0);
  EXPECT_FALSE(all.more);
  EXPECT_EQ(all.reply.hit_blocks, 24u);
}

// RAM answers at once for what it has.
TEST_F(PlansInParts, WhatIsInRamDoesNotWaitForTheDisk) {
  const ChainRequest chain = OnDisk(16);
  ChainRequest head = world->Chain({chain.blocks.begin(), chain.blocks.begin() + 4}, chain.part_bytes);
  ASSERT_EQ(Use(head), 4u);
  const Answer first = Ask(chain, 0, kFlagInParts);
  EXPECT_EQ(first.reply.hit_blocks, 4u);
  EXPECT_TRUE(first.more);
}

// A part that is damaged on disk ends the hit, whoever asks and how.
TEST_F(PlansInParts, DamageInALaterPartIsAMissThere) {
  const ChainRequest chain = OnDisk(24);
  const DiskEntry* place = world->shard->disk()->log().Find(chain.blocks[20].hash, {});
  ASSERT_NE(place, nullptr);
  std::byte byte{};
  MemoryFiles::Get(files->files[0], place->data_at() + 9, &byte, 1);
  byte ^= std::byte{1};
  MemoryFiles::Set(files->files[0], place->data_at() + 9, &byte, 1);
  uint32_t have = 0;
  for (bool more = true; more;) {
    const Answer next = Ask(chain, have, kFlagInParts);
    have += next.reply.hit_blocks;
    more = next.more && next.reply.hit_blocks > 0;
  }
  EXPECT_EQ(have, 20u);
}

}  // namespace
}  // namespace cistern
