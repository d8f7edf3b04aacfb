#include <new>
#include <utility>

#include "cistern/client.h"
#include "client/client_impl.h"
#include "client/convert.h"

// The waiting forms: the outcome is taken under the lock, without a callback of the user in between.
namespace cistern {
namespace {

template <typename Outcome, typename Report>
void TakePages(const Outcome& outcome, Report& report) {
  report.bytes = outcome.bytes;
  report.pages.reserve(outcome.pages.size());
  for (const PartResult r : outcome.pages) report.pages.push_back(ToPublic(r));
  report.status = ToPublic(outcome.status);
}
void Take(const LoadOutcome& outcome, LoadReport& report) {
  report.hit_blocks = outcome.hit_blocks;
  TakePages(outcome, report);
}
void Take(const StoreOutcome& outcome, StoreReport& report) { TakePages(outcome, report); }
template <typename Outcome>
void Take(Outcome outcome, Outcome& out) {
  out = std::move(outcome);
}

template <typename Report>
void TakeNothing(Report& report) {
  if constexpr (requires { report.bytes; }) report = Report();
  if constexpr (requires { report.status = Status(); }) {
    report.status = {Code::kResourceExhausted, "out of memory"};
  } else if constexpr (requires { report.status; }) {
    report.status = absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

template <typename Value>
struct Waiter : Client::Impl::Waiting {
  Value value{};
};

// The core's callback of a waiting call: small enough for std::function's buffer.
template <typename Value>
struct Landing {
  Client::Impl* impl;
  uint64_t serial;

  template <typename Outcome>
  void operator()(Outcome&& outcome) const {
    impl->mutex_.AssertHeld();  // Callbacks of the core run under it.
    auto* waiter = static_cast<Waiter<Value>*>(impl->FindWaiting(serial));
    if (waiter == nullptr) return;
    waiter->done = impl->finished_ = true;
    try {
      Take(std::forward<Outcome>(outcome), waiter->value);
    } catch (const std::bad_alloc&) {
      TakeNothing(waiter->value);
    }
  }
};

// Submits and drives until it has ended. By then, or once this has thrown, nothing lands in the caller's
// memory.
template <typename Value, typename Submit>
Value WaitOn(Client::Impl& impl, Submit&& submit) {
  Waiter<Value> waiter;
  MutexLock lock(&impl.mutex_);
  const Client::Impl::Seat seat(impl, waiter);
  impl.DrainMail();
  waiter.op = impl.AsOneCall([&] { return submit(Landing<Value>{&impl, waiter.serial}); });
  if (impl.asleep_) impl.Arm();
  impl.Drive(&waiter.done);
  return std::move(waiter.value);
}

// Of a lookup that Close has ended under a waiting thread: no answer, and no miss.
template <typename Outcome>
Status LookupStatus(const Outcome& found) {
  if (!found.status.ok()) return ToPublic(found.status);
  if (found.stopped_by == PartResult::kCancelled)
    return {Code::kCancelled, "another thread closed the client"};
  return {};
}

template <typename Report>
Report Forked() {
  Report report;
  report.status = ForkedStatus();
  return report;
}

}  // namespace

Result<GroupPlanOutcome> Client::Impl::WaitForGroups(const Chain& chain, const CallOptions& options,
                                                     bool lease) {
  GroupPlanOutcome found = WaitOn<GroupPlanOutcome>(*this, [&](const Landing<GroupPlanOutcome>& land) {
    mutex_.AssertHeld();
    return SubmitGroups(chain, options, lease, land);
  });
  if (Status status = LookupStatus(found); !status.ok()) return status;
  return found;
}

LoadReport Client::LoadTailWait(const Hit& hit, const Page& page, const CallOptions& options) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return Forked<LoadReport>();
  return WaitOn<LoadReport>(*impl_, [&](const Landing<LoadReport>& land) {
    impl_->mutex_.AssertHeld();
    return impl_->SubmitLoadTail(hit, page, options, land);
  });
}

StoreReport Client::StoreTailWait(const Chain& chain, uint64_t tokens, const ConstPage& page,
                                  const TailOptions& tail, const CallOptions& options) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return Forked<StoreReport>();
  return WaitOn<StoreReport>(*impl_, [&](const Landing<StoreReport>& land) {
    impl_->mutex_.AssertHeld();
    return impl_->SubmitStoreTail(chain, tokens, page, tail, options, land);
  });
}

PageResult Client::RecheckWait(const Hit& hit, const CallOptions& options) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return PageResult::kInvalid;
  return ToPublic(WaitOn<PartResult>(*impl_, [&](const Landing<PartResult>& land) {
    impl_->mutex_.AssertHeld();
    return impl_->SubmitRecheck(hit, options, land);
  }));
}

Result<uint32_t> Client::LookupWait(const Chain& chain, const CallOptions& options) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return ForkedStatus();
  if (Impl::LooksUpGroups(chain, options)) {
    const Result<GroupPlanOutcome> found = impl_->WaitForGroups(chain, options, /*lease=*/false);
    if (!found.ok()) return found.status();
    return static_cast<uint32_t>(found.value().hit.tokens / chain.layout().block_tokens);
  }
  const auto found = WaitOn<LookupOutcome>(*impl_, [&](const Landing<LookupOutcome>& land) {
    impl_->mutex_.AssertHeld();
    return impl_->Submit(chain, options, LookupDone(land));
  });
  if (Status status = LookupStatus(found); !status.ok()) return status;
  return found.blocks;
}

Result<Hit> Client::PlanWait(const Chain& chain, const CallOptions& options) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return ForkedStatus();
  if (Impl::PlansGroups(chain, options)) {
    if (Hit known = impl_->KnownHit(chain, options); known.rep() != nullptr) return known;
    Result<GroupPlanOutcome> found = impl_->WaitForGroups(chain, options, /*lease=*/true);
    if (!found.ok()) return found.status();
    return impl_->MakeGroupHit(chain, std::move(found.value()), options);
  }
  const auto found = WaitOn<PlanOutcome>(*impl_, [&](const Landing<PlanOutcome>& land) {
    impl_->mutex_.AssertHeld();
    return impl_->Submit(chain, options, PlanDone(land));
  });
  if (Status status = LookupStatus(found); !status.ok()) return status;
  return impl_->MakeHit(chain, found);
}

LoadReport Client::LoadWait(const Hit& hit, uint32_t first, std::span<const Page> pages,
                            const CallOptions& options) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return Forked<LoadReport>();
  return WaitOn<LoadReport>(*impl_, [&](const Landing<LoadReport>& land) {
    impl_->mutex_.AssertHeld();
    return impl_->SubmitLoad(hit, first, pages, options, land);
  });
}

LoadReport Client::FetchWait(const Chain& chain, std::span<const Page> pages, const CallOptions& options) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return Forked<LoadReport>();
  return WaitOn<LoadReport>(*impl_, [&](const Landing<LoadReport>& land) {
    impl_->mutex_.AssertHeld();
    return impl_->SubmitFetch(chain, pages, options, land);
  });
}

StoreReport Client::StoreWait(const Chain& chain, uint32_t first, std::span<const ConstPage> pages,
                              const CallOptions& options) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return Forked<StoreReport>();
  return WaitOn<StoreReport>(*impl_, [&](const Landing<StoreReport>& land) {
    impl_->mutex_.AssertHeld();
    return impl_->SubmitStore(chain, first, pages, options, land);
  });
}

}  // namespace cistern
