#include <algorithm>
#include <utility>

#include "cistern/client.h"
#include "client/client_impl.h"
#include "client/convert.h"

// Fetch in a layout of several groups: the hit by the hit rule, its history and its tail, and no lease left.
namespace cistern {
namespace {

// The first `bytes` of a page; empty when it is shorter.
Page CutTo(const Page& page, uint64_t bytes) {
  Page out;
  for (const Piece& piece : page.pieces) {
    const size_t part = std::min<uint64_t>(piece.bytes, bytes);
    if (part > 0) out.pieces.push_back({piece.data, part});
    bytes -= part;
  }
  return bytes == 0 ? out : Page();
}

}  // namespace

// One call under way. Owners: the callbacks of its open requests.
struct Client::Impl::GroupFetch {
  Chain chain;
  std::vector<Page> pages;
  std::optional<Page> tail;
  CallOptions options;
  LoadDone sink;
  Nanos deadline_at = 0;
  GroupPlanOutcome plan;
  std::vector<PartResult> results;
  uint32_t blocks = 0;
  uint64_t bytes = 0;
  int open = 0;
};

OpId Client::Impl::SubmitFetchGroups(const Chain& chain, std::span<const Page> pages,
                                     const CallOptions& options, LoadDone sink) {
  const GroupLayout& layout = *chain.layout().groups;
  if (layout.has_tails && options.tail == nullptr) {
    sink({absl::InvalidArgumentError("tail: the layout has windows or states; give a page for them"),
          0,
          {},
          0});
    return 0;
  }
  auto fetch = std::make_shared<GroupFetch>();
  fetch->chain = chain;
  fetch->pages.assign(pages.begin(), pages.end());
  if (layout.has_tails) fetch->tail = *options.tail;
  fetch->options = options;
  fetch->options.request_id.clear();  // A decision is for those who plan.
  const uint64_t tokens = pages.size() * uint64_t{chain.layout().block_tokens};
  fetch->options.max_tokens = options.max_tokens == 0 ? tokens : std::min(tokens, options.max_tokens);
  fetch->sink = std::move(sink);
  fetch->deadline_at = EndOf(options);
  return SubmitGroups(chain, fetch->options, /*lease=*/true, [this, fetch](GroupPlanOutcome plan) {
    mutex_.AssertHeld();  // Callbacks of the core run under it.
    fetch->plan = std::move(plan);
    try {
      LoadFetched(fetch);
    } catch (const std::bad_alloc&) {  // What has begun to load keeps its plan until it ends.
      ReleasePlans(fetch->plan);
      throw;
    }
  });
}

void Client::Impl::LoadFetched(const std::shared_ptr<GroupFetch>& fetch) {
  const GroupPlanOutcome& plan = fetch->plan;
  const PartResult behind = plan.stopped_by == PartResult::kOk ? PartResult::kMiss : plan.stopped_by;
  fetch->blocks = static_cast<uint32_t>(plan.hit.tokens / fetch->chain.layout().block_tokens);
  fetch->results.assign(fetch->pages.size(), behind);
  if (!plan.status.ok() || fetch->blocks == 0) return fetch->sink({plan.status, 0, fetch->results, 0});
  const Nanos left = std::max<Nanos>(fetch->deadline_at - clock_.Now(), 1);
  const auto landed = [this, fetch](bool tail) {
    return [this, fetch, tail](const LoadOutcome& out) {
      mutex_.AssertHeld();
      fetch->bytes += out.bytes;
      if (!out.status.ok()) fetch->plan.status = out.status;
      for (uint32_t i = 0; i < fetch->blocks && !tail; ++i) {
        const PartResult got = i < out.pages.size() ? out.pages[i] : PartResult::kInvalid;
        if (fetch->results[i] == PartResult::kOk) fetch->results[i] = got;
      }
      // Without its tail a hit is worth nothing: its pages failed with it.
      const PartResult end = !tail               ? PartResult::kOk
                             : out.pages.empty() ? PartResult::kInvalid
                                                 : out.pages[0];
      for (uint32_t i = 0; i < fetch->blocks && end != PartResult::kOk; ++i) fetch->results[i] = end;
      if (--fetch->open == 0) FinishFetch(*fetch);
    };
  };
  std::fill_n(fetch->results.begin(), fetch->blocks, PartResult::kOk);
  fetch->open = fetch->tail.has_value() ? 2 : 1;
  if (const Status status = Coords(fetch->chain, fetch->options); !status.ok()) {
    fetch->open = 1;
    return landed(true)({ToAbsl(status), 0, {}, 0});
  }
  core_->Load(plan.history.front(), 0, View(std::span(fetch->pages).first(fetch->blocks)), coords_, left,
              landed(false), SharedParts(fetch->chain, fetch->options));
  if (!fetch->tail.has_value()) return;
  StoredParts parts;
  if (const Status status = TailPartsOf(fetch->chain, fetch->options, plan.hit.tokens, parts); !status.ok()) {
    return landed(true)({ToAbsl(status), 0, {}, 0});
  }
  const Page page = CutTo(*fetch->tail, parts.TotalBytes());
  core_->Load(plan.tail, fetch->blocks - 1, View({&page, 1}), parts.coords, left, landed(true));
}

void Client::Impl::FinishFetch(GroupFetch& fetch) {
  ReleasePlans(fetch.plan);
  fetch.sink({fetch.plan.status, fetch.blocks, fetch.results, fetch.bytes});
}

}  // namespace cistern
