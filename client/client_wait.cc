#include "cistern/client.h"
#include "client/client_impl.h"
#include "client/convert.h"

// The waiting forms: the outcome is taken under the lock, without a callback of the user in between.
namespace cistern {
namespace {

// What a waiting call shares with the core's callback: one pointer to capture, so std::function stays in its
// buffer.
template <typename Value>
struct Waiter {
  Client::Impl* impl;
  bool done = false;
  Value value{};
  void Finish() {
    done = true;
    impl->finished_ = true;
  }
};

}  // namespace

Result<GroupPlanOutcome> Client::Impl::WaitForGroups(const Chain& chain, const CallOptions& options,
                                                     bool lease) {
  Waiter<GroupPlanOutcome> waiter{.impl = this};
  Locked(
      [&] {
        return SubmitGroups(chain, options, lease, [w = &waiter](GroupPlanOutcome outcome) {
          w->value = std::move(outcome);
          w->Finish();
        });
      },
      /*will_wait=*/true);
  WaitFor(&waiter.done);
  if (!waiter.value.status.ok()) return ToPublic(waiter.value.status);
  return std::move(waiter.value);
}

LoadReport Client::LoadTailWait(const Hit& hit, const Page& page, const CallOptions& options) {
  Waiter<LoadReport> waiter{.impl = impl_.get()};
  impl_->Locked(
      [&] {
        return impl_->SubmitLoadTail(hit, page, options, [w = &waiter](const LoadOutcome& outcome) {
          w->value = ToReport(outcome);
          w->Finish();
        });
      },
      /*will_wait=*/true);
  impl_->WaitFor(&waiter.done);
  return std::move(waiter.value);
}

StoreReport Client::StoreTailWait(const Chain& chain, uint64_t tokens, const ConstPage& page,
                                  const TailOptions& tail, const CallOptions& options) {
  Waiter<StoreReport> waiter{.impl = impl_.get()};
  impl_->Locked(
      [&] {
        return impl_->SubmitStoreTail(chain, tokens, page, tail, options,
                                      [w = &waiter](const StoreOutcome& outcome) {
                                        w->value = ToReport(outcome);
                                        w->Finish();
                                      });
      },
      /*will_wait=*/true);
  impl_->WaitFor(&waiter.done);
  return std::move(waiter.value);
}

PageResult Client::RecheckWait(const Hit& hit, const CallOptions& options) {
  Waiter<PartResult> waiter{.impl = impl_.get()};
  impl_->Locked(
      [&] {
        return impl_->SubmitRecheck(hit, options, [w = &waiter](PartResult result) {
          w->value = result;
          w->Finish();
        });
      },
      /*will_wait=*/true);
  impl_->WaitFor(&waiter.done);
  return ToPublic(waiter.value);
}

Result<uint32_t> Client::LookupWait(const Chain& chain, const CallOptions& options) {
  if (Impl::LooksUpGroups(chain, options)) {
    const Result<GroupPlanOutcome> found = impl_->WaitForGroups(chain, options, /*lease=*/false);
    if (!found.ok()) return found.status();
    return static_cast<uint32_t>(found.value().hit.tokens / chain.layout().block_tokens);
  }
  Waiter<LookupOutcome> waiter{.impl = impl_.get()};
  impl_->Locked(
      [&] {
        return impl_->Submit(chain, options, LookupDone([w = &waiter](const LookupOutcome& outcome) {
                               w->value = outcome;
                               w->Finish();
                             }));
      },
      /*will_wait=*/true);
  impl_->WaitFor(&waiter.done);
  if (!waiter.value.status.ok()) return ToPublic(waiter.value.status);
  return waiter.value.blocks;
}

Result<Hit> Client::PlanWait(const Chain& chain, const CallOptions& options) {
  if (Impl::PlansGroups(chain, options)) {
    if (Hit known = impl_->KnownHit(chain, options); known.rep() != nullptr) return known;
    Result<GroupPlanOutcome> found = impl_->WaitForGroups(chain, options, /*lease=*/true);
    if (!found.ok()) return found.status();
    return impl_->MakeGroupHit(chain, std::move(found.value()), options);
  }
  Waiter<PlanOutcome> waiter{.impl = impl_.get()};
  impl_->Locked(
      [&] {
        return impl_->Submit(chain, options, PlanDone([w = &waiter](const PlanOutcome& outcome) {
                               w->value = outcome;
                               w->Finish();
                             }));
      },
      /*will_wait=*/true);
  impl_->WaitFor(&waiter.done);
  if (!waiter.value.status.ok()) return ToPublic(waiter.value.status);
  return impl_->MakeHit(chain, waiter.value);
}

LoadReport Client::LoadWait(const Hit& hit, uint32_t first, std::span<const Page> pages,
                            const CallOptions& options) {
  Waiter<LoadReport> waiter{.impl = impl_.get()};
  impl_->Locked(
      [&] {
        return impl_->SubmitLoad(hit, first, pages, options, [w = &waiter](const LoadOutcome& outcome) {
          w->value = ToReport(outcome);
          w->Finish();
        });
      },
      /*will_wait=*/true);
  impl_->WaitFor(&waiter.done);
  return std::move(waiter.value);
}

LoadReport Client::FetchWait(const Chain& chain, std::span<const Page> pages, const CallOptions& options) {
  Waiter<LoadReport> waiter{.impl = impl_.get()};
  impl_->Locked(
      [&] {
        return impl_->SubmitFetch(chain, pages, options, [w = &waiter](const LoadOutcome& outcome) {
          w->value = ToReport(outcome);
          w->Finish();
        });
      },
      /*will_wait=*/true);
  impl_->WaitFor(&waiter.done);
  return std::move(waiter.value);
}

StoreReport Client::StoreWait(const Chain& chain, uint32_t first, std::span<const ConstPage> pages,
                              const CallOptions& options) {
  Waiter<StoreReport> waiter{.impl = impl_.get()};
  impl_->Locked(
      [&] {
        return impl_->SubmitStore(chain, first, pages, options, [w = &waiter](const StoreOutcome& outcome) {
          w->value = ToReport(outcome);
          w->Finish();
        });
      },
      /*will_wait=*/true);
  impl_->WaitFor(&waiter.done);
  return std::move(waiter.value);
}

}  // namespace cistern
