#include <utility>

#include "cistern/client.h"
#include "client/client_impl.h"
#include "client/client_telling.h"
#include "client/convert.h"

// One answer for all ranks of a request (F50), and whether it still holds.
namespace cistern {
namespace {

constexpr size_t kRequestIdBytesMax = 256;

}  // namespace

Hit RequestCache::Find(const BlockHash& request) {
  std::shared_ptr<Hit::Rep> rep;  // May be the last one: it goes without the lock.
  {
    MutexLock lock(&mutex_);
    const auto at = hits_.find(request);
    if (at != hits_.end()) rep = at->second.lock();
  }
  return rep == nullptr || *rep->over ? Hit() : Hit(std::move(rep));
}

void RequestCache::Put(const BlockHash& request, const Hit& hit) {
  MutexLock lock(&mutex_);
  if (hits_.size() >= kRequestsKnownMax) {
    std::erase_if(hits_, [](const auto& row) { return row.second.expired(); });
    if (hits_.size() >= kRequestsKnownMax) return;
  }
  hits_[request] = hit.shared();
}

BlockHash Hit::Rep::first_block() const {
  return chain.blocks() == 0 ? BlockHash{} : chain.rep()->keys.front().hash;
}

// Of the chain too: another prompt under the same name is another request.
Status Client::Impl::NameRequest(const Chain& chain, const CallOptions& options,
                                 std::optional<BlockHash>& out) {
  if (options.request_id.empty()) return {};
  if (chain.rep() == nullptr) return {Code::kInvalidArgument, "chain: empty"};
  if (options.request_id.size() > kRequestIdBytesMax) {
    return {Code::kInvalidArgument, "request_id: " + std::to_string(options.request_id.size()) +
                                        " bytes, at most " + std::to_string(kRequestIdBytesMax)};
  }
  ChainHasher hasher(chain.rep()->root);
  if (chain.blocks() > 0) hasher.ResumeAfter(chain.rep()->keys.back().hash);
  const Extra name{.kind = Extra::Kind::kSalt, .offset = 0, .value = "request " + options.request_id};
  out = hasher.Append({}, {&name, 1}).hash;
  return {};
}

std::shared_ptr<const GroupLayout> Client::Impl::GroupsOf(const Chain& chain) {
  if (chain.grouped()) return chain.layout().groups;
  const LayoutSpec& spec = chain.rep()->spec;
  auto out = std::make_shared<GroupLayout>();
  out->layout.block_tokens = spec.block_tokens;
  out->id = chain.rep()->layout_id;
  GroupLayout::HistorySet& set = out->sets.emplace_back();
  for (uint32_t slice = 0; slice < spec.slices; ++slice) {
    for (uint16_t span = 0; span < spec.spans; ++span) {
      set.parts.coords.push_back({0, static_cast<uint16_t>(slice), span});
      set.parts.bytes.push_back(spec.part_bytes);
    }
  }
  return out;
}

Hit Client::Impl::KnownHit(const Chain& chain, const CallOptions& options) {
  std::optional<BlockHash> request;
  if (!NameRequest(chain, options, request).ok() || !request.has_value()) return {};
  return requests_.Find(*request);
}

OpId Client::Impl::SubmitRecheck(const Hit& hit, const CallOptions& options, RecheckDone sink) {
  Hit::Rep* rep = hit.rep();
  if (rep == nullptr || rep->anchor != anchor_) {
    sink(PartResult::kInvalid);
    return 0;
  }
  std::vector<PlanHandle> plans = rep->more_plans;
  plans.push_back(rep->plan);
  plans.push_back(rep->tail_plan);
  std::erase(plans, PlanHandle{0});
  if (plans.empty()) {
    sink(rep->blocks == 0 ? PartResult::kOk : PartResult::kLeaseExpired);
    return 0;
  }
  struct All {
    size_t open;
    PartResult worst;
    RecheckDone sink;
    std::shared_ptr<std::atomic<bool>> over;
  };
  // Owners: the callback of each plan.
  auto all = std::make_shared<All>(All{plans.size(), PartResult::kOk, std::move(sink), rep->over});
  OpId first = 0;
  for (const PlanHandle plan : plans) {
    const OpId op = core_->Recheck(plan, DeadlineOf(options), [all](PartResult result) {
      if (result != PartResult::kOk) all->worst = result;
      if (--all->open != 0) return;
      if (all->worst != PartResult::kOk) *all->over = true;
      all->sink(all->worst);
    });
    if (first == 0) first = op;
  }
  return first;
}

CallId Client::Recheck(const Hit& hit, const CallOptions& options, std::function<void(PageResult)> done) {
  const Impl::Entry entry(impl_.get());
  if (!entry) {
    if (done) done(PageResult::kInvalid);
    return 0;
  }
  Impl* impl = impl_.get();
  return impl->Call(std::move(done), [&](const auto& telling) {
    impl->mutex_.AssertHeld();
    return impl->SubmitRecheck(hit, options, [telling](PartResult result) {
      telling->Tell([&] { return std::tuple(ToPublic(result)); });
    });
  });
}

}  // namespace cistern
