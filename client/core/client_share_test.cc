// Ranks of one host that load the same parts: one pulls, the others take its copy, and whatever goes wrong
// with that they pull themselves.
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "client/core/testing/client_fixture.h"
#include "client/host_share.h"

namespace cistern {
namespace {

using ::testing::Each;

constexpr uint32_t kBlocks = 12;

class ClientShare : public ClientFixture {
 protected:
  // One rank: a core with a transport and a share of its own. The core ends its calls when it goes: what they
  // write to outlives it.
  struct Rank {
    PlanHandle plan = 0;
    Pages pages;
    LoadResult result;
    std::unique_ptr<HostShare> share;
    std::unique_ptr<FakeTransport> transport;
    std::unique_ptr<ClientCore> core;
  };

  ClientShare() {
    std::string name = ::testing::TempDir() + "/cistern-ranks-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~ClientShare() override {
    ranks_.clear();
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "a segment was left";
  }

  void Up(uint32_t ranks, bool one_sided, size_t share_bytes = 1 << 20) {
    AddNode("node-1");
    nodes_.back()->one_sided = one_sided;
    map_.epoch = 1;
    keys_ = MakeKeys(kBlocks);
    Fill(keys_, kBlocks);
    shared_.assign(coords_.size(), 1);
    for (uint32_t i = 0; i < ranks; ++i) {
      auto rank = std::make_unique<Rank>();
      rank->share = std::make_unique<HostShare>("engine", share_bytes, folder_);
      rank->transport = std::make_unique<FakeTransport>();
      rank->transport->nodes = transport_.nodes;
      options_.share = rank->share.get();
      rank->core = std::make_unique<ClientCore>(options_, clock_, *rank->transport, random_);
      rank->core->SetCredentials("ticket", {}, {});
      rank->core->SetMap(map_);
      rank->pages = MakePages(kBlocks);
      ranks_.push_back(std::move(rank));
      Plan(*ranks_.back());
    }
  }
  void Plan(Rank& rank) {
    bool done = false;
    rank.core->Plan(Spec(keys_), [&](const PlanOutcome& o) {
      rank.plan = o.plan;
      done = true;
    });
    Drive(done);
    ASSERT_NE(rank.plan, 0u);
  }
  void Load(Rank& rank, Nanos deadline = kSecond) {
    rank.result = {};
    rank.core->Load(rank.plan, 0, rank.pages.view(), coords_, deadline, rank.result.Take(), shared_);
  }
  // Polls all ranks but those that stand still, moving time on, until `done`.
  void Drive(const bool& done, const Rank* still = nullptr) {
    for (int i = 0; i < 100000 && !done; ++i) {
      bool did = false;
      Nanos next = clock_.Now() + kSecond;
      for (const auto& rank : ranks_) {
        if (rank.get() == still) continue;
        did |= rank->core->Poll();
        next = std::min(next, rank->core->NextWake());
      }
      if (!did) clock_.Set(std::max(clock_.Now() + kMicrosecond, next));
    }
    ASSERT_TRUE(done);
  }
  void AllRight(Rank& rank) {
    EXPECT_THAT(rank.result.pages, Each(PartResult::kOk));
    for (uint32_t i = 0; i < kBlocks; ++i) EXPECT_TRUE(Right(rank.pages, i, keys_[i])) << i;
    EXPECT_TRUE(CanariesWhole(rank.pages));
  }
  static uint64_t Count(const Rank& rank, const std::string& name) {
    for (const auto& [key, value] : rank.core->Counters()) {
      if (key == "client_share_" + name + "_total") return value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }
  uint64_t Parts() const { return uint64_t{kBlocks} * coords_.size(); }
  // Changes what lies in the segment, as a broken process might.
  void Spoil(size_t at, std::byte with) {
    DIR* folder = opendir(folder_.c_str());
    std::string path;
    while (const dirent* entry = readdir(folder)) {
      if (entry->d_name[0] != '.') path = folder_ + "/" + entry->d_name;
    }
    closedir(folder);
    const int fd = open(path.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    const off_t size = lseek(fd, 0, SEEK_END);
    std::vector<std::byte> all(static_cast<size_t>(size));
    ASSERT_EQ(pread(fd, all.data(), all.size(), 0), size);
    // Bytes of every slot that has any: the first behind the heads are found by what they are not.
    const size_t slots = all.size() / (kPartBytes + 128);
    for (size_t slot = 0; slot < slots; ++slot) {
      const size_t offset = slots * 128 + slot * kPartBytes + at;
      ASSERT_EQ(pwrite(fd, &with, 1, static_cast<off_t>(offset)), 1);
    }
    close(fd);
  }

  std::string folder_;
  std::vector<BlockKey> keys_;
  std::vector<uint8_t> shared_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(ClientShare, OneRankPullsForAllOnEveryPath) {
  for (const bool one_sided : {true, false}) {
    SCOPED_TRACE(one_sided ? "pulls" : "replies with bytes");
    ranks_.clear();
    nodes_.clear();
    map_.nodes.clear();
    Up(4, one_sided);
    FakeNode& node = *nodes_.back();
    for (const auto& rank : ranks_) Load(*rank);
    for (const auto& rank : ranks_) Drive(rank->result.done);
    uint64_t taken = 0, published = 0;
    for (const auto& rank : ranks_) {
      AllRight(*rank);
      taken += Count(*rank, "parts");
      published += Count(*rank, "published");
    }
    EXPECT_EQ(taken, 3 * Parts());
    EXPECT_EQ(published, Parts());
    if (one_sided) {
      EXPECT_EQ(node.pulls, Parts());
    }
  }
}

TEST_F(ClientShare, NothingIsSharedThatIsNotSaidToBe) {
  Up(2, true);
  shared_.assign(coords_.size(), 0);
  for (const auto& rank : ranks_) Load(*rank);
  for (const auto& rank : ranks_) Drive(rank->result.done);
  EXPECT_EQ(nodes_.back()->pulls, 2 * Parts());
}

TEST_F(ClientShare, AFlippedByteIsRefusedAndPulledAnew) {
  for (const bool one_sided : {true, false}) {
    ranks_.clear();
    nodes_.clear();
    map_.nodes.clear();
    Up(2, one_sided);
    Load(*ranks_[0]);
    Drive(ranks_[0]->result.done);
    AllRight(*ranks_[0]);
    Spoil(77, std::byte{0x5a});
    Load(*ranks_[1]);
    Drive(ranks_[1]->result.done);
    AllRight(*ranks_[1]);
    EXPECT_GT(Count(*ranks_[1], "refused"), Parts() / 2);  // One byte in 256 had that value before.
    EXPECT_EQ(Count(*ranks_[1], "refused") + Count(*ranks_[1], "parts"), Parts());
  }
}

TEST_F(ClientShare, BytesOfAnotherGenerationAreRefused) {
  Up(2, true);
  Load(*ranks_[0]);
  Drive(ranks_[0]->result.done);
  for (auto& [key, part] : nodes_.back()->parts) part.generation += 2;
  ranks_[1]->core->Release(ranks_[1]->plan);
  Plan(*ranks_[1]);
  Load(*ranks_[1]);
  Drive(ranks_[1]->result.done);
  AllRight(*ranks_[1]);
  EXPECT_EQ(Count(*ranks_[1], "refused"), Parts());
}

TEST_F(ClientShare, ARankThatStandsStillIsNotWaitedFor) {
  for (const bool one_sided : {true, false}) {
    ranks_.clear();
    nodes_.clear();
    map_.nodes.clear();
    Up(2, one_sided);
    ranks_[0]->transport->hold_pulls = true;
    ranks_[0]->transport->async_pulls = true;
    Load(*ranks_[0]);  // Claims all, and is never polled again: stopped, or killed.
    Load(*ranks_[1]);
    const Nanos begin = clock_.Now();
    Drive(ranks_[1]->result.done, ranks_[0].get());
    AllRight(*ranks_[1]);
    EXPECT_EQ(Count(*ranks_[1], "late"), Parts());
    EXPECT_LT(clock_.Now() - begin, kSecond / 2 + 50 * kMillisecond);
    ranks_[0]->transport->hold_pulls = false;
  }
}

TEST_F(ClientShare, AShortDeadlineLeavesHalfOfItToPull) {
  Up(2, true);
  ranks_[0]->transport->hold_pulls = true;
  ranks_[0]->transport->async_pulls = true;
  Load(*ranks_[0]);
  Load(*ranks_[1], 20 * kMillisecond);
  Drive(ranks_[1]->result.done, ranks_[0].get());
  AllRight(*ranks_[1]);
  ranks_[0]->transport->hold_pulls = false;
}

TEST_F(ClientShare, WhatFailsForTheOneIsPulledByTheOther) {
  Up(2, true);
  ranks_[0]->transport->async_pulls = true;  // The other one comes while they are under way.
  int spoilt = 0;
  nodes_.back()->edit_pull = [&](PullResult& result, std::vector<std::byte>&) { result.crc ^= spoilt++ < 3; };
  Load(*ranks_[0]);
  Load(*ranks_[1]);
  for (const auto& rank : ranks_) Drive(rank->result.done);
  AllRight(*ranks_[1]);
  EXPECT_EQ(Count(*ranks_[1], "gone"), 3u);
}

TEST_F(ClientShare, ACancelledCallGivesItsClaimsBackAndWaitsForNothing) {
  Up(2, true);
  for (const auto& rank : ranks_) {
    rank->transport->hold_pulls = true;
    rank->transport->async_pulls = true;
  }
  LoadResult result;
  const OpId id = ranks_[0]->core->Load(ranks_[0]->plan, 0, ranks_[0]->pages.view(), coords_, kSecond,
                                        result.Take(), shared_);
  LoadResult other;
  const OpId waits = ranks_[1]->core->Load(ranks_[1]->plan, 0, ranks_[1]->pages.view(), coords_, kSecond,
                                           other.Take(), shared_);
  ranks_[1]->core->Cancel(waits);
  ranks_[0]->core->Cancel(id);
  Drive(result.done);
  Drive(other.done);
  EXPECT_THAT(other.pages, Each(PartResult::kCancelled));
  for (const auto& rank : ranks_) rank->transport->hold_pulls = false;
  Plan(*ranks_[1]);
  Load(*ranks_[1]);
  Drive(ranks_[1]->result.done);
  AllRight(*ranks_[1]);
  EXPECT_EQ(Count(*ranks_[1], "late"), 0u);
}

TEST_F(ClientShare, AFullSegmentCostsOnlyTheSharing) {
  Up(2, true, 3 * (kPartBytes + 128));
  for (const auto& rank : ranks_) Load(*rank);
  for (const auto& rank : ranks_) Drive(rank->result.done);
  for (const auto& rank : ranks_) AllRight(*rank);
  EXPECT_GT(Count(*ranks_[1], "full"), 0u);
  EXPECT_EQ(Count(*ranks_[1], "full") + Count(*ranks_[1], "parts"), Parts());
}

}  // namespace
}  // namespace cistern
