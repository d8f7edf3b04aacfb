#include "client/cli/group_replay.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "client/cli/broken_lines.h"
#include "client/cli/content.h"
#include "client/cli/interrupt.h"
#include "client/cli/output.h"
#include "client/cli/plain_layout.h"
#include "core/bytes.h"
#include "core/group_layout.h"

namespace cistern {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr int kPoison = 0xdb;

size_t BytesOf(const std::vector<PagePart>& parts) {
  size_t bytes = 0;
  for (const PagePart& part : parts) bytes += part.bytes;
  return bytes;
}

}  // namespace

size_t GroupReplay::MemoryFor(const Layout& layout) {
  const GroupLayout& groups = *layout.groups;
  // A tail is largest where its windows are full.
  const uint64_t tail = groups.TailAt(uint64_t{groups.align_tokens()} << 16).TotalBytes();
  return std::max<size_t>({kReplayChunkBytes, groups.HistoryBlockBytes(), tail});
}

GroupReplay::GroupReplay(const ReplayOptions& options, const TailRetention& retention, Client& client,
                         Layout layout, const Memory& memory)
    : options_(options), retention_(retention), client_(client), layout_(std::move(layout)), memory_(memory) {
  within_.deadline = kReplayDeadline;
  for (LayoutGroup& group : LayoutGroups(layout_)) groups_.push_back({.group = std::move(group)});
  std::memset(memory_.load, kPoison, memory_.bytes);
}

absl::Status GroupReplay::Run(TraceReader& trace) {
  const auto started = SteadyClock::now();
  const BrokenLines broken(options_.file);
  TraceRequest request;
  while (!(totals_.interrupted = Interrupt::Asked()) &&
         (options_.requests == 0 || totals_.requests < options_.requests) && trace.Next(request, broken)) {
    One(request);
  }
  totals_.broken_lines = broken.count();
  broken.TellRest();
  totals_.seconds = std::chrono::duration<double>(SteadyClock::now() - started).count();
  return trace.status();
}

bool GroupReplay::Begin(const TraceRequest& request) {
  tokens_.clear();
  for (const uint64_t id : request.hash_ids) AppendBlockTokens(id, request.block_tokens, tokens_);
  prompt_tokens_ = tokens_.size();
  whole_tokens_ =
      std::min<uint64_t>(prompt_tokens_, request.input_tokens / request.block_tokens * request.block_tokens);
  Result<Chain> chain = client_.MakeChain(layout_, tokens_);
  Status status = chain.status();
  if (status.ok()) {
    chain_ = std::move(chain.value());
    Result<std::vector<PagePart>> parts = client_.PageParts(chain_, within_);
    status = parts.status();
    if (status.ok()) block_parts_ = std::move(parts.value());
  }
  if (!status.ok()) Note("line " + std::to_string(request.line) + ": " + status.message());
  block_bytes_ = BytesOf(block_parts_);
  return status.ok();
}

void GroupReplay::One(const TraceRequest& request) {
  ++totals_.requests;
  totals_.blocks += request.hash_ids.size();
  const uint64_t whole =
      std::min<uint64_t>(request.hash_ids.size(), request.input_tokens / request.block_tokens);
  whole_.blocks += whole;
  uint64_t ideal = 0;
  while (ideal < request.hash_ids.size() && seen_.contains(request.hash_ids[ideal])) ++ideal;
  totals_.ideal_hit_blocks += ideal;
  whole_.ideal_hit_blocks += std::min(ideal, whole);
  seen_.insert(request.hash_ids.begin(), request.hash_ids.end());
  if (request.hash_ids.empty()) return;
  if (!Begin(request)) {
    totals_.failed_parts += request.hash_ids.size();
    return CountReason("INVALID");
  }
  const auto begin = SteadyClock::now();
  Result<Hit> planned = client_.PlanWait(chain_, within_);
  Finished(begin, totals_.plan_us);
  const Hit hit = planned.ok() ? planned.value() : Hit();
  totals_.hit_blocks += hit.tokens() / request.block_tokens;
  whole_.hit_blocks += std::min(whole, hit.tokens() / request.block_tokens);
  if (hit.tokens() < prompt_tokens_) CountReason(std::string("miss ") + hit.miss_reason());
  // An engine computes what is behind the first block that did not come, and all of it without the tail.
  uint32_t good = LoadHistory(request, hit);
  if (good == hit.blocks() && !LoadTail(request, hit)) good = 0;
  StoreHistory(good);
  StoreTails(hit, good == hit.blocks() ? hit.tokens() : 0);
  client_.Release(hit);
}

uint32_t GroupReplay::LoadHistory(const TraceRequest& request, const Hit& hit) {
  const uint32_t blocks = hit.blocks();
  const auto chunk = static_cast<uint32_t>(std::max<size_t>(1, kReplayChunkBytes / block_bytes_));
  uint32_t good = blocks;
  std::vector<Page> pages;
  for (uint32_t first = 0; first < blocks; first += chunk) {
    const uint32_t count = std::min(chunk, blocks - first);
    pages.clear();
    for (uint32_t i = 0; i < count; ++i) pages.emplace_back(memory_.load + i * block_bytes_, block_bytes_);
    const auto begin = SteadyClock::now();
    const LoadReport report = client_.LoadWait(hit, first, pages, within_);
    Finished(begin, totals_.load_us);
    totals_.bytes_read += report.bytes;
    for (uint32_t i = 0; i < count; ++i) {
      const PageResult result = i < report.pages.size() ? report.pages[i] : PageResult::kInvalid;
      if (result == PageResult::kOk) {
        if (options_.verify) Verify(request, block_parts_, first + i, memory_.load + i * block_bytes_);
        continue;
      }
      ++totals_.failed_parts;
      CountReason(PageResultName(result));
      good = std::min(good, first + i);
    }
  }
  return good;
}

bool GroupReplay::LoadTail(const TraceRequest& request, const Hit& hit) {
  if (hit.tokens() == 0 || !layout_.groups->has_tails) return true;
  const Result<std::vector<PagePart>> parts = client_.PageParts(chain_, within_, hit.tokens());
  if (!parts.ok()) return false;
  const auto begin = SteadyClock::now();
  const LoadReport report = client_.LoadTailWait(hit, Page(memory_.load, BytesOf(parts.value())), within_);
  Finished(begin, totals_.load_us);
  totals_.bytes_read += report.bytes;
  const PageResult result = report.pages.empty() ? PageResult::kInvalid : report.pages[0];
  if (result != PageResult::kOk) {
    ++totals_.failed_parts;
    CountReason(PageResultName(result));
    return false;
  }
  if (options_.verify) Verify(request, parts.value(), hit.blocks() - 1, memory_.load);
  return true;
}

uint64_t GroupReplay::Seed(uint32_t block, const PagePart& part) const {
  const uint64_t where =
      uint64_t{part.group} << 48 | uint64_t{part.slice} << 32 | uint64_t{part.span} << 16 | part.chunk;
  return ContentSeed(LoadLe<uint64_t>(chain_.hash(block).data()), where);
}

void GroupReplay::Fill(const std::vector<PagePart>& parts, uint32_t block, std::byte* page) const {
  for (const PagePart& part : parts) {
    FillContent(Seed(block, part), page, part.bytes);
    page += part.bytes;
  }
}

void GroupReplay::Verify(const TraceRequest& request, const std::vector<PagePart>& parts, uint32_t block,
                         std::byte* page) {
  for (const PagePart& part : parts) {
    const std::optional<size_t> wrong = FindWrongByte(Seed(block, part), page, part.bytes);
    if (!wrong) {
      ++totals_.verified_parts;
      ++groups_[part.group].verified_parts;
    } else if (++totals_.wrong_parts <= kRemarksMax) {
      Note("WRONG BYTES: line " + std::to_string(request.line) + " block " + std::to_string(block) +
           " group " + groups_[part.group].group.name + " at byte " + std::to_string(*wrong));
    }
    // What this load left must not pass for the next one's bytes.
    std::memset(page, kPoison, part.bytes);
    page += part.bytes;
  }
}

void GroupReplay::CountStored(const std::vector<PagePart>& parts, PageResult result) {
  if (result == PageResult::kExists) return;
  if (result == PageResult::kOk) {
    for (const PagePart& part : parts) groups_[part.group].bytes_written += part.bytes;
    return;
  }
  const bool refused = result == PageResult::kNoSpace || result == PageResult::kBusy;
  ++(refused ? totals_.refused_parts : totals_.failed_parts);
  CountReason(PageResultName(result));
}

void GroupReplay::StoreHistory(uint32_t first) {
  const uint32_t blocks = chain_.blocks();
  const auto chunk = static_cast<uint32_t>(std::max<size_t>(1, kReplayChunkBytes / block_bytes_));
  std::vector<ConstPage> pages;
  for (; first < blocks; first += chunk) {
    const uint32_t count = std::min(chunk, blocks - first);
    pages.clear();
    for (uint32_t i = 0; i < count; ++i) {
      Fill(block_parts_, first + i, memory_.store + i * block_bytes_);
      pages.emplace_back(memory_.store + i * block_bytes_, block_bytes_);
    }
    const auto begin = SteadyClock::now();
    const StoreReport report = client_.StoreWait(chain_, first, pages, within_);
    Finished(begin, totals_.store_us);
    totals_.bytes_written += report.bytes;
    for (uint32_t i = 0; i < count; ++i) {
      CountStored(block_parts_, i < report.pages.size() ? report.pages[i] : PageResult::kInvalid);
    }
  }
}

void GroupReplay::StoreTails(const Hit& hit, uint64_t hit_tokens) {
  if (!layout_.groups->has_tails) return;
  ChooseTails(retention_,
              {.hit_tokens = hit_tokens,
               .history_tokens = std::min(hit.history_tokens(), whole_tokens_),
               .max_tokens = whole_tokens_,
               .align_tokens = std::max(layout_.groups->align_tokens(), layout_.block_tokens)},
              wanted_);
  for (const WantedTail& tail : wanted_) {
    const Result<std::vector<PagePart>> parts = client_.PageParts(chain_, within_, tail.tokens);
    if (!parts.ok()) continue;
    const auto block = static_cast<uint32_t>(tail.tokens / layout_.block_tokens - 1);
    Fill(parts.value(), block, memory_.store);
    TailOptions options;
    options.junction = tail.junction;
    if (&tail == &wanted_.back()) options.replaces_tokens = hit_tokens;
    const auto begin = SteadyClock::now();
    const StoreReport report = client_.StoreTailWait(
        chain_, tail.tokens, ConstPage(memory_.store, BytesOf(parts.value())), options, within_);
    Finished(begin, totals_.store_us);
    totals_.bytes_written += report.bytes;
    const PageResult result = report.pages.empty() ? PageResult::kInvalid : report.pages[0];
    CountStored(parts.value(), result);
    tails_stored_ += result == PageResult::kOk;
    junctions_stored_ += result == PageResult::kOk && tail.junction;
  }
}

void GroupReplay::CountReason(const std::string& name) {
  const auto at =
      std::find_if(reasons_.begin(), reasons_.end(), [&](const auto& row) { return row.first == name; });
  if (at != reasons_.end()) {
    ++at->second;
  } else {
    reasons_.emplace_back(name, 1);
  }
}

void GroupReplay::Finished(SteadyClock::time_point begin, Samples& samples) {
  const auto took = SteadyClock::now() - begin;
  samples.Add(std::chrono::duration<double, std::micro>(took).count());
  if (took * 10 > kReplayDeadline * 11) ++totals_.late_calls;
}

}  // namespace cistern
