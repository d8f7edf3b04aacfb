#include <algorithm>
#include <utility>

#include "cistern/client.h"
#include "client/client_impl.h"

// Which parts of a call other ranks of this host load too. How they are handed on is core/core_share.cc.
namespace cistern {

std::vector<uint8_t> Client::Impl::SharedParts(const Chain& chain, const CallOptions& options) {
  if (share_ == nullptr || !options.host_shared) return {};
  std::vector<uint8_t> shared(coords_.size(), 1);
  if (!chain.grouped()) return shared;
  std::vector<GroupShare> shares;
  if (options.tp <= 1 || !Share(chain, options, shares).ok()) return {};
  for (size_t i = 0; i < shared.size(); ++i) shared[i] = shares[coords_[i].group].sharers > 1 ? 1 : 0;
  return shared;
}

// A plan and a load: a fetch by one request brings bytes that nobody has asked another rank for. Owners: the
// callbacks of its open request.
struct Client::Impl::SharedFetch {
  Chain chain;
  std::vector<Page> pages;
  CallOptions options;
  LoadDone sink;
  Nanos deadline_at = 0;
  std::vector<PartResult> results;
};

OpId Client::Impl::FetchInTwo(const Chain& chain, std::span<const Page> pages, const CallOptions& options,
                              const CallSpec& spec, LoadDone sink) {
  auto fetch = std::make_shared<SharedFetch>();
  fetch->chain = chain;
  fetch->pages.assign(pages.begin(), pages.end());
  fetch->options = options;
  fetch->sink = std::move(sink);
  fetch->deadline_at = EndOf(options);
  CallSpec plan = spec;
  plan.chain.blocks = plan.chain.blocks.subspan(0, pages.size());
  return core_->Plan(plan, [this, fetch](const PlanOutcome& found) {
    mutex_.AssertHeld();  // Callbacks of the core run under it.
    LoadFound(fetch, found);
  });
}

void Client::Impl::LoadFound(const std::shared_ptr<SharedFetch>& fetch, const PlanOutcome& plan) {
  const PartResult behind = plan.stopped_by == PartResult::kOk ? PartResult::kMiss : plan.stopped_by;
  fetch->results.assign(fetch->pages.size(), behind);
  const Status status = Coords(fetch->chain, fetch->options);
  if (!plan.status.ok() || plan.blocks == 0 || !status.ok()) {
    if (plan.plan != 0) core_->Release(plan.plan);
    return fetch->sink({plan.status, 0, fetch->results, 0});
  }
  const Nanos left = std::max<Nanos>(fetch->deadline_at - clock_.Now(), 1);
  const std::vector<uint8_t> shared = SharedParts(fetch->chain, fetch->options);
  core_->Load(
      plan.plan, 0, View(std::span<const Page>(fetch->pages).first(plan.blocks)), coords_, left,
      [this, fetch, handle = plan.plan](const LoadOutcome& out) {
        mutex_.AssertHeld();
        core_->Release(handle);
        std::copy(out.pages.begin(), out.pages.end(), fetch->results.begin());
        fetch->sink({out.status, static_cast<uint32_t>(out.pages.size()), fetch->results, out.bytes});
      },
      shared);
}

}  // namespace cistern
