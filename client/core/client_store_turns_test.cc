// Whose parts a Poll takes, and how much of them.
#include "client/core/client_core_impl.h"
#include "client/core/testing/store_fixture.h"

namespace cistern {
namespace {

using ::testing::Each;

class ClientStoreTurns : public StoreFixture {};
INSTANTIATE_TEST_SUITE_P(Paths, ClientStoreTurns,
                         ::testing::Values(StorePath::kInline, StorePath::kStaged, StorePath::kWindow),
                         StorePathName);

// Loads wait for the Poll under way.
TEST_P(ClientStoreTurns, NoPollChecksumsMoreThanItsShare) {
  AddNodes(1);
  Start();
  for (const uint32_t bytes : {uint32_t{kPutBytesPerPoll * 5 / 2}, kPartBytes}) {
    part_bytes_ = bytes;
    const uint32_t blocks = (6u << 20) / (2 * bytes);
    const auto keys = MakeKeys(blocks);
    const Source source = MakeSource(keys, 0, blocks);
    StoreResult result;
    core_->Store(Spec(keys), 0, source.view(), result.Take());
    uint64_t before = PutBytes();
    int polls = 0;
    for (; !result.done && polls < 1000; ++polls) {
      core_->Poll();
      // A big part is counted with the last of its pieces, and each takes a share.
      EXPECT_LE(PutBytes() - before, std::max<uint64_t>(bytes, kPutBytesPerPoll + kInlinePutBytes));
      before = PutBytes();
    }
    EXPECT_GE(polls, static_cast<int>(uint64_t{blocks} * 2 * bytes / (kPutBytesPerPoll + kInlinePutBytes)));
    if (bytes > kPutBytesPerPoll) {
      EXPECT_GE(polls, static_cast<int>(blocks * 2 * 2));
    }
    ASSERT_THAT(result.pages, Each(PartResult::kOk));
    Pages pages = MakePages(blocks);
    EXPECT_THAT(Fetch(keys, pages).pages, Each(PartResult::kOk));
    for (uint32_t i = 0; i < blocks; ++i) EXPECT_TRUE(Right(pages, i, keys[i])) << i;
    EXPECT_EQ(window_->free_chunks(), kStagingChunks);
  }
}

TEST_P(ClientStoreTurns, AStoreThatEndsWithinAPartGivesItsChunkBack) {
  AddNodes(1);
  Start();
  part_bytes_ = kPutBytesPerPoll * 4;
  const auto keys = MakeKeys(1);
  const Source source = MakeSource(keys, 0, 1);
  StoreResult result;
  const OpId id = core_->Store(Spec(keys), 0, source.view(), result.Take());
  for (int i = 0; i < 100 && window_->free_chunks() == kStagingChunks && PutBytes() == 0; ++i) core_->Poll();
  core_->Cancel(id);
  ASSERT_TRUE(RunUntil(result.done));
  EXPECT_THAT(result.pages, Each(PartResult::kCancelled));
  Settle();
  EXPECT_EQ(window_->free_chunks(), kStagingChunks);
  part_bytes_ = kPartBytes;
  const auto others = MakeKeys(3);
  EXPECT_THAT(Store(others, 0, MakeSource(others, 0, 3)).pages, Each(PartResult::kOk));
}

// Five at once, each followed by another: all get as far.
TEST_P(ClientStoreTurns, StoresHaveTheirSharesInTurn) {
  AddNodes(1);
  Start();
  coords_ = {{0, 0, 0}};
  constexpr size_t kStores = 5;
  for (const uint32_t bytes : {uint32_t{1} << 20, uint32_t{64} << 10}) {
    part_bytes_ = bytes;
    const uint32_t blocks = (2u << 20) / bytes;
    std::vector<StoreResult> results(kStores);
    std::vector<std::vector<BlockKey>> keys(kStores);
    std::vector<Source> sources;
    std::vector<int> ended(kStores);
    for (size_t i = 0; i < kStores; ++i) sources.push_back(MakeSource(MakeKeys(blocks), 0, blocks));
    const auto begin = [&](size_t i) {
      keys[i] = MakeKeys(blocks);
      results[i].done = false;
      core_->Store(Spec(keys[i], 2 * kSecond), 0, sources[i].view(), results[i].Take());
    };
    for (size_t i = 0; i < kStores; ++i) begin(i);
    for (int poll = 0; poll < 4000; ++poll) {
      core_->Poll();
      clock_.Set(clock_.Now() + kMillisecond);
      for (size_t i = 0; i < kStores; ++i) {
        if (!results[i].done) continue;
        ++ended[i];
        EXPECT_THAT(results[i].pages, Each(PartResult::kOk)) << "store " << i << ", parts of " << bytes;
        begin(i);
      }
    }
    EXPECT_LE(*std::max_element(ended.begin(), ended.end()),
              2 * *std::min_element(ended.begin(), ended.end()))
        << "parts of " << bytes;
    for (StoreResult& result : results) EXPECT_TRUE(RunUntil(result.done));
    EXPECT_EQ(window_->free_chunks(), kStagingChunks);
  }
}

TEST_P(ClientStoreTurns, ANodeDoesNotWaitForAnotherToHaveAll) {
  AddNodes(3);
  map_.run_blocks_cap = 1;
  Start();
  part_bytes_ = kPutBytesPerPoll * 4;
  coords_ = {{0, 0, 0}};
  const auto keys = MakeKeys(12);
  const Source source = MakeSource(keys, 0, 12);
  std::vector<size_t> wanted;
  for (const auto& node : nodes_) {
    size_t blocks = 0;
    for (uint32_t b = 0; b < 12; ++b) blocks += &OwnerOf(keys, b) == node.get() ? 1 : 0;
    wanted.push_back(blocks);
  }
  StoreResult result;
  core_->Store(Spec(keys), 0, source.view(), result.Take());
  const auto behind = [&](size_t i) { return wanted[i] != 0 && nodes_[i]->parts.empty(); };
  while (!result.done && (behind(0) || behind(1) || behind(2))) {
    for (size_t i = 0; i < 3; ++i) EXPECT_LE(nodes_[i]->parts.size(), 2u) << "node " << i;
    core_->Poll();
  }
  ASSERT_TRUE(RunUntil(result.done));
  EXPECT_THAT(result.pages, Each(PartResult::kOk));
}

// A's part is copied half when requests run out; B waits for its chunk.
TEST_P(ClientStoreTurns, AChunkGivenBackForWantOfRequestsWakesWhoWaits) {
  if (GetParam() != StorePath::kStaged) GTEST_SKIP() << "no chunks";
  AddNodes(20);
  map_.run_blocks_cap = 1;
  Start();
  coords_ = {{0, 0, 0}};
  core_->ConnectAll();
  Settle();
  for (auto& node : nodes_) node->hold_type = FrameType::kLookupReply;
  std::vector<uint32_t> taken;
  while (window_->free_chunks() > 1) taken.push_back(*window_->TakeChunk());
  part_bytes_ = kPutBytesPerPoll * 16;
  const auto keys_a = MakeKeys(1);
  const Source source_a = MakeSource(keys_a, 0, 1);
  StoreResult a, b;
  core_->Store(Spec(keys_a, 100 * kSecond), 0, source_a.view(), a.Take());
  for (int i = 0; i < 100 && window_->free_chunks() != 0; ++i) core_->Poll();
  part_bytes_ = kPartBytes;
  const auto keys_b = MakeKeys(1);
  const Source source_b = MakeSource(keys_b, 0, 1);
  core_->Store(Spec(keys_b, 100 * kSecond), 0, source_b.view(), b.Take());
  for (int i = 0; i < 6; ++i) core_->Poll();
  ASSERT_FALSE(a.done || b.done);
  const auto many = MakeKeys(300);
  for (int i = 0; i < 4000; ++i) core_->Lookup(Spec(many, 100 * kSecond), [](const LookupOutcome&) {});
  for (int i = 0; i < 100 && !a.done; ++i) core_->Poll();
  ASSERT_TRUE(a.done);
  EXPECT_THAT(a.pages, Each(PartResult::kBusy));
  for (auto& node : nodes_) node->hold_type = {};
  for (int i = 0; i < 500000 && core_->Poll(); ++i) {
  }
  EXPECT_TRUE(b.done) << "waits for its deadline beside a free chunk";
  RunUntil(b.done, 200 * kSecond);
  for (const uint32_t chunk : taken) window_->ReturnChunk(chunk);
}

}  // namespace
}  // namespace cistern
