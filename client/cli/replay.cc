#include "client/cli/replay.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "client/cli/broken_lines.h"
#include "client/cli/content.h"
#include "client/cli/interrupt.h"
#include "client/cli/output.h"

namespace cistern {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr int kPoison = 0xdb;  // What a page holds before a load: bytes that no block has.
constexpr std::chrono::milliseconds kProgressEvery{500};

size_t ChunkBlocks(uint64_t block_bytes) {
  return std::clamp<size_t>(kReplayChunkBytes / block_bytes, 1, kReplayChunkBlocksMax);
}

}  // namespace

Replay::Replay(const ReplayOptions& options, ReplayTarget& target, std::byte* load_memory,
               std::byte* store_memory)
    : options_(options),
      target_(target),
      load_memory_(load_memory),
      store_memory_(store_memory),
      chunk_blocks_(ChunkBlocks(options.bytes_per_block)),
      progress_(isatty(STDERR_FILENO) != 0) {
  for (size_t i = 0; i < chunk_blocks_; ++i) {
    load_pages_.emplace_back(load_memory_ + i * options_.bytes_per_block, options_.bytes_per_block);
    store_pages_.emplace_back(store_memory_ + i * options_.bytes_per_block, options_.bytes_per_block);
  }
  if (options_.verify) std::memset(load_memory_, kPoison, chunk_blocks_ * options_.bytes_per_block);
}

absl::Status Replay::Run(TraceReader& trace) {
  started_ = shown_ = SteadyClock::now();
  const BrokenLines broken(options_.file);
  TraceRequest request;
  while (!(totals_.interrupted = Interrupt::Asked()) &&
         (options_.requests == 0 || totals_.requests < options_.requests) && trace.Next(request, broken)) {
    if (options_.speed > 0) WaitForStamp(request);
    if (Interrupt::Asked()) continue;
    One(request);
    if (progress_) ShowProgress(false);
  }
  totals_.seconds = std::chrono::duration<double>(SteadyClock::now() - started_).count();
  if (progress_) ShowProgress(true);
  totals_.broken_lines = broken.count();
  broken.TellRest();
  if (totals_.wrong_parts > kRemarksMax)
    Note(std::to_string(totals_.wrong_parts - kRemarksMax) + " more wrong parts, not named here");
  return trace.status();
}

void Replay::One(const TraceRequest& request) {
  const auto blocks = static_cast<uint32_t>(request.hash_ids.size());
  ++totals_.requests;
  totals_.blocks += blocks;
  CountIdeal(request);
  if (blocks == 0) return;
  if (Status begun = target_.Begin(request); !begun.ok()) {
    Note("line " + std::to_string(request.line) + ": " + begun.message());
    totals_.failed_parts += blocks;
    CountReason(PageResult::kInvalid, blocks);
    return;
  }
  const auto begin = SteadyClock::now();
  const Result<uint32_t> planned = target_.Plan();
  Finished(begin, totals_.plan_us);
  const uint32_t hit = planned.ok() ? std::min(planned.value(), blocks) : 0;
  totals_.hit_blocks += hit;
  // An engine computes what is behind the first block that did not come, and stores all of that.
  StoreRest(LoadHit(request, hit), blocks);
  target_.End();
}

// Returns the first block that did not load, or `hit`.
uint32_t Replay::LoadHit(const TraceRequest& request, uint32_t hit) {
  uint32_t good = hit;
  for (uint32_t first = 0; first < hit;) {
    const auto count = std::min<uint32_t>(hit - first, static_cast<uint32_t>(chunk_blocks_));
    const auto begin = SteadyClock::now();
    const LoadReport report = target_.Load(first, std::span(load_pages_).first(count));
    Finished(begin, totals_.load_us);
    totals_.bytes_read += report.bytes;
    for (uint32_t i = 0; i < count; ++i) {
      const PageResult result = i < report.pages.size() ? report.pages[i] : PageResult::kInvalid;
      if (result == PageResult::kOk) continue;
      ++totals_.failed_parts;
      CountReason(result);
      good = std::min(good, first + i);
    }
    if (options_.verify) Verify(request, first, report);
    first += count;
  }
  return good;
}

void Replay::Verify(const TraceRequest& request, uint32_t first, const LoadReport& report) {
  const size_t bytes = options_.bytes_per_block;
  for (uint32_t i = 0; i < report.pages.size(); ++i) {
    std::byte* page = load_memory_ + i * bytes;
    if (report.pages[i] == PageResult::kOk) {
      const std::optional<size_t> wrong = FindWrongByte(target_.Seed(first + i), page, bytes);
      if (!wrong) {
        ++totals_.verified_parts;
      } else if (++totals_.wrong_parts <= kRemarksMax) {
        Note("WRONG BYTES: line " + std::to_string(request.line) + " block " + std::to_string(first + i) +
             " (id " + std::to_string(request.hash_ids[first + i]) + ") at byte " + std::to_string(*wrong));
      }
    }
    // The same block often comes to the same page again: what this load left must not pass for the next one's
    // bytes.
    std::memset(page, kPoison, bytes);
  }
}

void Replay::StoreRest(uint32_t first, uint32_t blocks) {
  while (first < blocks) {
    const auto count = std::min<uint32_t>(blocks - first, static_cast<uint32_t>(chunk_blocks_));
    for (uint32_t i = 0; i < count; ++i) {
      FillContent(target_.Seed(first + i), store_memory_ + i * options_.bytes_per_block,
                  options_.bytes_per_block);
    }
    const auto begin = SteadyClock::now();
    const StoreReport report = target_.Store(first, std::span(store_pages_).first(count));
    Finished(begin, totals_.store_us);
    totals_.bytes_written += report.bytes;
    for (uint32_t i = 0; i < count; ++i) {
      const PageResult result = i < report.pages.size() ? report.pages[i] : PageResult::kInvalid;
      if (result == PageResult::kOk || result == PageResult::kExists) continue;
      const bool refused = result == PageResult::kNoSpace || result == PageResult::kBusy;
      ++(refused ? totals_.refused_parts : totals_.failed_parts);
      CountReason(result);
    }
    first += count;
  }
}

// A memory without end: a block is a hit when it and all before it in its request were in earlier requests.
void Replay::CountIdeal(const TraceRequest& request) {
  bool all_before = true;
  for (uint64_t id : request.hash_ids) {
    if (all_before) all_before = seen_.contains(id);
    if (!all_before) break;
    ++totals_.ideal_hit_blocks;
  }
  seen_.insert(request.hash_ids.begin(), request.hash_ids.end());
}

void Replay::CountReason(PageResult result, uint64_t by) {
  const std::string name = PageResultName(result);
  const auto at =
      std::find_if(reasons_.begin(), reasons_.end(), [&](const auto& row) { return row.first == name; });
  if (at != reasons_.end()) {
    at->second += by;
  } else {
    reasons_.emplace_back(name, by);
  }
}

void Replay::WaitForStamp(const TraceRequest& request) {
  if (totals_.requests == 0) first_stamp_ms_ = request.timestamp_ms;
  const double due_s = static_cast<double>(request.timestamp_ms - first_stamp_ms_) / 1e3 / options_.speed;
  Interrupt::SleepUntil(
      started_ + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(due_s)));
}

void Replay::ShowProgress(bool last) {
  const auto now = SteadyClock::now();
  if (!last && now - shown_ < kProgressEvery) return;
  shown_ = now;
  const double share =
      totals_.blocks == 0 ? 0 : static_cast<double>(totals_.hit_blocks) / static_cast<double>(totals_.blocks);
  std::fprintf(stderr, "\rrequest %llu  hit ratio %.3f  read %.2f GB  written %.2f GB %s",
               static_cast<unsigned long long>(totals_.requests), share,
               static_cast<double>(totals_.bytes_read) / 1e9,
               static_cast<double>(totals_.bytes_written) / 1e9, last ? "\n" : "");
}

void Replay::Finished(SteadyClock::time_point begin, Samples& samples) {
  const auto took = SteadyClock::now() - begin;
  const double us = std::chrono::duration<double, std::micro>(took).count();
  samples.Add(us);
  if (kReplayDeadline >= kLateDeadlineMin && took * 10 > kReplayDeadline * 11) ++totals_.late_calls;
}

}  // namespace cistern
