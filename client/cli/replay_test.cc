#include "client/cli/replay.h"

#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "client/cli/broken_lines.h"
#include "client/cli/content.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using testing::HasSubstr;

class FakeTrace final : public TraceReader {
 public:
  explicit FakeTrace(std::vector<std::vector<uint64_t>> requests) : requests_(std::move(requests)) {}
  std::set<uint64_t> broken_lines;
  bool Next(TraceRequest& out, BrokenLine broken) override {
    while (at_ < requests_.size()) {
      const uint64_t line = at_ + 1;
      out.line = line;
      out.hash_ids = requests_[at_++];
      if (!broken_lines.contains(line)) return true;
      broken(line, "no JSON");
    }
    return false;
  }
  absl::Status status() const override { return absl::OkStatus(); }

 private:
  std::vector<std::vector<uint64_t>> requests_;
  size_t at_ = 0;
};

// A cache without end, with faults to order.
class FakeTarget final : public ReplayTarget {
 public:
  std::set<uint64_t> wrong_ids;    // Loads report OK and deliver another block's bytes.
  std::set<uint64_t> undelivered;  // Loads report OK and deliver nothing.
  std::map<uint64_t, PageResult> load_results, store_results;
  std::map<uint64_t, int> stored;  // id -> how often.

  Status Begin(const TraceRequest& request) override {
    ids_ = request.hash_ids;
    return Status();
  }
  uint64_t Seed(uint32_t block) const override { return ContentSeed(1, ids_[block]); }
  Result<uint32_t> Plan() override {
    uint32_t hit = 0;
    while (hit < ids_.size() && stored.contains(ids_[hit])) ++hit;
    return hit;
  }
  LoadReport Load(uint32_t first, std::span<const Page> pages) override {
    LoadReport report;
    for (uint32_t i = 0; i < pages.size(); ++i) {
      const uint64_t id = ids_[first + i];
      const auto at = load_results.find(id);
      report.pages.push_back(at == load_results.end() ? PageResult::kOk : at->second);
      if (report.pages.back() != PageResult::kOk || undelivered.contains(id)) continue;
      FillContent(ContentSeed(1, wrong_ids.contains(id) ? id + 1 : id), pages[i].pieces[0].data,
                  pages[i].pieces[0].bytes);
      report.bytes += pages[i].pieces[0].bytes;
    }
    return report;
  }
  StoreReport Store(uint32_t first, std::span<const ConstPage> pages) override {
    StoreReport report;
    for (uint32_t i = 0; i < pages.size(); ++i) {
      const uint64_t id = ids_[first + i];
      EXPECT_EQ(FindWrongByte(Seed(first + i), pages[i].pieces[0].data, pages[i].pieces[0].bytes),
                std::nullopt);
      const auto at = store_results.find(id);
      PageResult result = at != store_results.end() ? at->second : PageResult::kOk;
      if (result == PageResult::kOk && ++stored[id] > 1) result = PageResult::kExists;
      if (result == PageResult::kOk) report.bytes += pages[i].pieces[0].bytes;
      report.pages.push_back(result);
    }
    return report;
  }
  void End() override {}

 private:
  std::vector<uint64_t> ids_;
};

class ReplayTest : public testing::Test {
 protected:
  ReplayTest() : load_(kReplayChunkBytes), store_(kReplayChunkBytes) {
    options_.bytes_per_block = 4096;
    options_.verify = true;
    options_.file = "t.jsonl";
  }
  ReplayTotals& Run(FakeTrace& trace) {
    replay_ = std::make_unique<Replay>(options_, target_, load_.data(), store_.data());
    testing::internal::CaptureStderr();
    EXPECT_TRUE(replay_->Run(trace).ok());
    err_ = testing::internal::GetCapturedStderr();
    return replay_->totals();
  }
  ReplayOptions options_;
  FakeTarget target_;
  std::vector<std::byte> load_, store_;
  std::unique_ptr<Replay> replay_;
  std::string err_;
};

TEST_F(ReplayTest, CountsWhatAnIdealMemoryWouldHit) {
  FakeTrace trace({{1, 2, 3}, {1, 2, 4, 3}, {5}, {1, 2, 4, 3}});
  const ReplayTotals& t = Run(trace);
  EXPECT_EQ(t.requests, 4);
  EXPECT_EQ(t.blocks, 12);
  EXPECT_EQ(t.ideal_hit_blocks, 2 + 4);
  EXPECT_EQ(t.hit_blocks, 6);
  EXPECT_EQ(t.verified_parts, 6);
  EXPECT_EQ(t.wrong_parts + t.failed_parts + t.refused_parts + t.late_calls, 0);
  EXPECT_EQ(t.bytes_read, 6 * 4096);
  EXPECT_EQ(t.bytes_written, 5 * 4096);
}

TEST_F(ReplayTest, StopsAfterTheRequestsAskedFor) {
  FakeTrace trace({{1}, {1}, {1}});
  options_.requests = 2;
  EXPECT_EQ(Run(trace).requests, 2);
}

TEST_F(ReplayTest, WrongBytesReportedOkAreWrongParts) {
  FakeTrace trace({{1, 2, 3}, {1, 2, 3}});
  target_.wrong_ids = {2};
  const ReplayTotals& t = Run(trace);
  EXPECT_EQ(t.wrong_parts, 1);
  EXPECT_EQ(t.verified_parts, 2);
  EXPECT_THAT(err_, HasSubstr("WRONG BYTES: line 2 block 1 (id 2) at byte 0"));
}

TEST_F(ReplayTest, BytesThatNeverArrivedAreWrongThoughTheLastLoadLeftTheSameBlock) {
  FakeTrace trace({{1}, {1}, {1}, {1}});
  Run(trace);
  target_.undelivered = {1};
  FakeTrace again({{1}, {1}});
  EXPECT_EQ(Run(again).wrong_parts, 2);
}

TEST_F(ReplayTest, ABlockThatDoesNotLoadIsAFailureAndIsStoredAgainWithAllBehindIt) {
  FakeTrace trace({{1, 2, 3}, {1, 2, 3, 4}});
  target_.load_results[2] = PageResult::kPeerGone;
  const ReplayTotals& t = Run(trace);
  EXPECT_EQ(t.failed_parts, 1);
  EXPECT_EQ(t.verified_parts, 2);
  EXPECT_EQ(target_.stored[1], 1);
  EXPECT_EQ(target_.stored[2], 2);
  EXPECT_EQ(target_.stored[3], 2);
  ASSERT_EQ(replay_->reasons().size(), 1);
  EXPECT_EQ(replay_->reasons()[0].first, "PEER_GONE");
}

TEST_F(ReplayTest, AFullCacheRefusesAndAGoneOneFails) {
  FakeTrace trace({{1, 2, 3}});
  target_.store_results = {{2, PageResult::kNoSpace}, {3, PageResult::kDeadline}};
  const ReplayTotals& t = Run(trace);
  EXPECT_EQ(t.refused_parts, 1);
  EXPECT_EQ(t.failed_parts, 1);
}

TEST_F(ReplayTest, BrokenLinesAreNamedAndLeftOutAndALongListIsShortened) {
  FakeTrace trace(std::vector<std::vector<uint64_t>>(100, {1}));
  for (uint64_t line = 3; line < 3 + kRemarksMax + 5; ++line) trace.broken_lines.insert(line);
  const ReplayTotals& t = Run(trace);
  EXPECT_EQ(t.requests, 100 - kRemarksMax - 5);
  EXPECT_EQ(t.broken_lines, kRemarksMax + 5);
  EXPECT_THAT(err_, HasSubstr("t.jsonl line 3 left out: no JSON"));
  EXPECT_THAT(err_, HasSubstr("5 more lines left out"));
  EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), static_cast<long>(kRemarksMax) + 1);
}

TEST_F(ReplayTest, ARequestLongerThanOneChunkIsMovedInSeveralCalls) {
  options_.bytes_per_block = kReplayChunkBytes / 4;
  FakeTrace trace({{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 4, 5, 6, 7, 8, 9}});
  ReplayTotals& t = Run(trace);
  EXPECT_EQ(t.verified_parts, 9);
  EXPECT_EQ(t.load_us.count(), 3);
  EXPECT_EQ(t.store_us.count(), 3);
}

}  // namespace
}  // namespace cistern
