#include "cistern/client.h"

#include <new>
#include <utility>

#include "client/client_impl.h"
#include "client/client_telling.h"
#include "client/convert.h"

// The public calls: each turns its arguments into the core's form under the lock, and the core's outcome into
// a report.
namespace cistern {
namespace {

// The end of [first, first + count) of `all` slices or spans; count 0 means all.
Status RangeEnd(const std::string& what, uint32_t first, uint32_t count, uint32_t all, uint32_t& end) {
  if (count == 0 && first != 0) return {Code::kInvalidArgument, what + "_first without " + what + "_count"};
  end = count == 0 ? all : first + count;
  if (end <= all) return {};
  return {Code::kInvalidArgument, what + "_count: " + what + "s [" + std::to_string(first) + ", " +
                                      std::to_string(std::exchange(end, 0)) + ") of " + std::to_string(all)};
}

// A lookup that was cancelled or ran out of time has no answer; anything else that stops it is a shorter hit.
Status LookupStatus(const absl::Status& status, PartResult stopped_by) {
  if (!status.ok()) return ToPublic(status);
  if (stopped_by == PartResult::kCancelled) return {Code::kCancelled, "cancelled"};
  return {};
}

}  // namespace

const char* PageResultName(PageResult result) {
  return PartResultName(static_cast<PartResult>(result)).data();
}

Hit::Rep::~Rep() {
  if (anchor == nullptr || (plan == 0 && more_plans.empty() && tail_plan == 0)) return;
  if (anchor->forks != ForkCount()) return;
  MutexLock lock(&anchor->mutex);
  if (anchor->client == nullptr) return;
  anchor->client->ReleaseHit(*this);
}
uint32_t Hit::blocks() const { return rep_ == nullptr ? 0 : rep_->blocks; }
PageResult Hit::stopped_by() const {
  return rep_ == nullptr ? PageResult::kMiss : ToPublic(rep_->stopped_by);
}
std::string Hit::owner(uint32_t block) const {
  if (rep_ == nullptr || rep_->plan == 0 || rep_->anchor->forks != ForkCount()) return {};
  MutexLock anchored(&rep_->anchor->mutex);
  Client::Impl* client = rep_->anchor->client;
  if (client == nullptr) return {};
  MutexLock lock(&client->mutex_);
  return std::string(client->core_->PlanOwner(rep_->plan, block));
}

Result<std::unique_ptr<Client>> Client::Impl::Connect(const ClientOptions& options, Clock* clock) {
  auto impl = std::make_unique<Impl>(options, clock);
  if (Status status = impl->Init(); !status.ok()) return status;
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}
Result<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  return Impl::Connect(options);
}

Result<Chain> Client::MakeChain(const Layout& layout, std::span<const uint32_t> tokens,
                                std::span<const ChainExtra> extras) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return ForkedStatus();
  std::array<uint8_t, 32> secret;
  uint64_t weights_epoch = 0;
  {
    MutexLock lock(&impl_->mutex_);
    impl_->DrainMail();
    secret = impl_->core_->namespace_secret();
    weights_epoch = impl_->core_->map().weights_epoch;
  }
  return HashChain(layout, nullptr, tokens, extras, secret, weights_epoch);
}

Result<Chain> Client::ExtendChain(const Chain& prefix, std::span<const uint32_t> more_tokens,
                                  std::span<const ChainExtra> extras) {
  if (prefix.rep() == nullptr) return Status(Code::kInvalidArgument, "prefix: empty");
  return HashChain({}, prefix.rep(), more_tokens, extras, {}, 0);
}

Status Client::Impl::Coords(const Chain& chain, const CallOptions& options) {
  coord_bytes_.clear();
  if (const auto& groups = chain.rep()->layout.groups; groups != nullptr) {
    std::vector<GroupShare> share;
    if (Status status = Share(chain, options, share); !status.ok()) return status;
    StoredParts parts;
    for (const uint32_t group : groups->sets.front().groups) {
      AppendParts(groups->layout, group, share[group], 0, groups->scale, parts);
    }
    if (parts.coords.empty()) return {Code::kInvalidArgument, "layer_first: the stage has no history"};
    coords_ = std::move(parts.coords);
    coord_bytes_ = std::move(parts.bytes);
    return {};
  }
  const LayoutSpec& spec = chain.rep()->spec;
  uint32_t slices_end = 0, spans_end = 0;
  Status status = RangeEnd("slice", options.slice_first, options.slice_count, spec.slices, slices_end);
  if (status.ok()) status = RangeEnd("span", options.span_first, options.span_count, spec.spans, spans_end);
  coords_.clear();
  for (uint32_t slice = options.slice_first; slice < slices_end; ++slice) {
    for (uint32_t span = options.span_first; span < spans_end; ++span)
      coords_.push_back({0, static_cast<uint16_t>(slice), static_cast<uint16_t>(span)});
  }
  return status;
}

Status Client::Impl::Spec(const Chain& chain, const CallOptions& options, CallSpec& out) {
  if (chain.rep() == nullptr) return {Code::kInvalidArgument, "chain: empty"};
  if (Status status = Coords(chain, options); !status.ok()) return status;
  out.chain.layout = chain.rep()->layout_id;
  out.chain.part_bytes = chain.rep()->spec.part_bytes;
  out.chain.blocks = chain.rep()->keys;
  out.chain.keep = std::shared_ptr<const void>(chain.shared());
  out.coords = coords_;
  out.coord_bytes = coord_bytes_;
  out.deadline = DeadlineOf(options);
  return RetentionOf(options, out.retention);
}

PageView Client::Impl::View(std::span<const Page> pages) {
  segments_.clear();
  ends_.clear();
  for (const Page& page : pages) {
    for (const cistern::Piece& piece : page.pieces)
      segments_.push_back({static_cast<std::byte*>(piece.data), piece.bytes});
    ends_.push_back(static_cast<uint32_t>(segments_.size()));
  }
  return {segments_, ends_};
}

ConstPageView Client::Impl::View(std::span<const ConstPage> pages) {
  const_segments_.clear();
  ends_.clear();
  for (const ConstPage& page : pages) {
    for (const ConstPiece& piece : page.pieces) {
      const_segments_.push_back({static_cast<const std::byte*>(piece.data), piece.bytes});
    }
    ends_.push_back(static_cast<uint32_t>(const_segments_.size()));
  }
  return {const_segments_, ends_};
}

Hit Client::Impl::MakeHit(const Chain& chain, const PlanOutcome& outcome) {
  auto rep = std::make_shared<Hit::Rep>();
  rep->anchor = anchor_;
  rep->plan = outcome.plan;
  rep->chain = chain;
  rep->blocks = outcome.blocks;
  rep->stopped_by = outcome.stopped_by;
  rep->why = outcome.why;
  return Hit(std::move(rep));
}

// Of an outcome that found no memory for its hit.
void Client::Impl::ReleasePlan(PlanHandle plan) {
  try {
    if (plan != 0) core_->Release(plan);
  } catch (const std::bad_alloc&) {  // Of others' releases: leases end by themselves.
  }
}
void Client::Impl::ReleasePlans(const GroupPlanOutcome& plans) {
  for (const PlanHandle plan : plans.history) ReleasePlan(plan);
  ReleasePlan(plans.tail);
}

void Client::Impl::ReleaseHit(Hit::Rep& rep) {
  MutexLock lock(&mutex_);
  *rep.over = true;
  if (std::exchange(rep.released, true)) return;
  try {
    GroupPlanOutcome plans;
    plans.history = rep.more_plans;
    plans.history.push_back(rep.plan);
    plans.tail = rep.tail_plan;
    plans.asked = rep.asked;
    ReleaseGroups(*core_, plans, rep.first_block(), rep.request, rep.ranks);
  } catch (const std::bad_alloc&) {  // A destructor calls this: nothing may come out of it.
    const auto forget = [this](PlanHandle plan) {
      mutex_.AssertHeld();
      try {
        core_->Forget(plan);
      } catch (const std::bad_alloc&) {  // Of others' releases: leases end by themselves.
      }
    };
    for (const PlanHandle plan : rep.more_plans) forget(plan);
    forget(rep.plan);
    forget(rep.tail_plan);
  }
}

// Each submission below has two forms of the same: `sink` takes the core's outcome under the lock.
template <typename Outcome>
OpId Client::Impl::SubmitFind(const Chain& chain, const CallOptions& options,
                              OpId (ClientCore::*find)(const CallSpec&, std::function<void(const Outcome&)>),
                              std::function<void(const Outcome&)> sink) {
  CallSpec spec;
  Outcome answer;
  if (Status status = Spec(chain, options, spec); !status.ok()) {
    answer.status = ToAbsl(status);
  } else if (IsBelowMinimum(chain)) {
    answer.stopped_by = PartResult::kMiss;
    answer.why = MissReason::kBelowMinimum;
  } else {
    return (core_.get()->*find)(spec, std::move(sink));
  }
  sink(answer);
  return 0;
}
OpId Client::Impl::Submit(const Chain& chain, const CallOptions& options, LookupDone sink) {
  return SubmitFind<LookupOutcome>(chain, options, &ClientCore::Lookup, std::move(sink));
}
OpId Client::Impl::Submit(const Chain& chain, const CallOptions& options, PlanDone sink) {
  return SubmitFind<PlanOutcome>(chain, options, &ClientCore::Plan, std::move(sink));
}
OpId Client::Impl::SubmitFetch(const Chain& chain, std::span<const Page> pages, const CallOptions& options,
                               LoadDone sink) {
  if (chain.grouped()) return SubmitFetchGroups(chain, pages, options, std::move(sink));
  CallSpec spec;
  Status status = Spec(chain, options, spec);
  if (!status.ok()) {
    sink({ToAbsl(status), 0, {}, 0});
    return 0;
  }
  if (share_ != nullptr && options.host_shared && !pages.empty() && pages.size() <= chain.blocks())
    return FetchInTwo(chain, pages, options, spec, std::move(sink));
  return core_->Fetch(spec, View(pages), std::move(sink));
}
CallId Client::Lookup(const Chain& chain, const CallOptions& options,
                      std::function<void(Status, uint32_t)> done) {
  const Impl::Entry entry(impl_.get());
  if (!entry) {
    if (done) done(ForkedStatus(), 0);
    return 0;
  }
  Impl* impl = impl_.get();
  return impl->Call(std::move(done), [&](const auto& telling) {
    impl->mutex_.AssertHeld();
    if (Impl::LooksUpGroups(chain, options)) {
      return impl->SubmitGroups(chain, options, /*lease=*/false, [telling, chain](const GroupPlanOutcome& o) {
        const auto blocks = static_cast<uint32_t>(o.hit.tokens / chain.layout().block_tokens);
        telling->Tell([&] { return std::tuple(LookupStatus(o.status, o.stopped_by), blocks); });
      });
    }
    return impl->Submit(
        chain, options, LookupDone([telling](const LookupOutcome& o) {
          telling->Tell([&] { return std::tuple(LookupStatus(o.status, o.stopped_by), o.blocks); });
        }));
  });
}

CallId Client::Plan(const Chain& chain, const CallOptions& options, std::function<void(Status, Hit)> done) {
  const Impl::Entry entry(impl_.get());
  if (!entry) {
    if (done) done(ForkedStatus(), {});
    return 0;
  }
  Impl* impl = impl_.get();
  // Outside of the lock: it may be the last copy.
  const Hit known = Impl::PlansGroups(chain, options) ? impl->KnownHit(chain, options) : Hit();
  return impl->Call(std::move(done), [&](const auto& telling) -> OpId {
    impl->mutex_.AssertHeld();
    if (known.rep() != nullptr) {
      telling->Tell([&] { return std::tuple(Status(), known); });
      return 0;
    }
    if (Impl::PlansGroups(chain, options)) {
      return impl->SubmitGroups(
          chain, options, /*lease=*/true, [impl, chain, options, telling](const GroupPlanOutcome& o) {
            impl->mutex_.AssertHeld();
            const bool made = telling->Tell([&] {
              Status status = LookupStatus(o.status, o.stopped_by);
              return std::tuple(std::move(status), impl->MakeGroupHit(chain, o, options));
            });
            if (!made) impl->ReleasePlans(o);
          });
    }
    return impl->Submit(chain, options, PlanDone([impl, chain, telling](const PlanOutcome& o) {
                          impl->mutex_.AssertHeld();
                          const bool made = telling->Tell([&] {
                            Status status = LookupStatus(o.status, o.stopped_by);
                            return std::tuple(std::move(status), impl->MakeHit(chain, o));
                          });
                          if (!made) impl->ReleasePlan(o.plan);
                        }));
  });
}

CallId Client::Load(const Hit& hit, uint32_t first, std::span<const Page> pages, const CallOptions& options,
                    std::function<void(LoadReport)> done) {
  const Impl::Entry entry(impl_.get());
  if (!entry) {
    if (done) done({.status = ForkedStatus(), .pages = {}});
    return 0;
  }
  Impl* impl = impl_.get();
  return impl->Call(std::move(done), [&](const auto& telling) {
    impl->mutex_.AssertHeld();
    return impl->SubmitLoad(hit, first, pages, options, [telling](const LoadOutcome& o) {
      telling->Tell([&] { return std::tuple(ToReport(o)); });
    });
  });
}

CallId Client::Fetch(const Chain& chain, std::span<const Page> pages, const CallOptions& options,
                     std::function<void(LoadReport)> done) {
  const Impl::Entry entry(impl_.get());
  if (!entry) {
    if (done) done({.status = ForkedStatus(), .pages = {}});
    return 0;
  }
  Impl* impl = impl_.get();
  return impl->Call(std::move(done), [&](const auto& telling) {
    impl->mutex_.AssertHeld();
    return impl->SubmitFetch(chain, pages, options, [telling](const LoadOutcome& o) {
      telling->Tell([&] { return std::tuple(ToReport(o)); });
    });
  });
}

CallId Client::Store(const Chain& chain, uint32_t first, std::span<const ConstPage> pages,
                     const CallOptions& options, std::function<void(StoreReport)> done) {
  const Impl::Entry entry(impl_.get());
  if (!entry) {
    if (done) done({.status = ForkedStatus(), .pages = {}});
    return 0;
  }
  Impl* impl = impl_.get();
  return impl->Call(std::move(done), [&](const auto& telling) {
    impl->mutex_.AssertHeld();
    return impl->SubmitStore(chain, first, pages, options, [telling](const StoreOutcome& o) {
      telling->Tell([&] { return std::tuple(ToReport(o)); });
    });
  });
}

void Client::Release(const Hit& hit) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return;
  if (hit.rep() == nullptr || hit.rep()->anchor != impl_->anchor_) return;
  impl_->ReleaseHit(*hit.rep());
}

void Client::Cancel(CallId call) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return;
  impl_->Locked([&] {
    impl_->core_->Cancel(call);
    return true;
  });
}

bool Client::Poll() {
  const Impl::Entry entry(impl_.get(), Impl::Entry::Kind::kPoll);
  return entry && impl_->Poll();
}
int Client::event_fd() const { return impl_->Forked() ? -1 : impl_->epoll_fd_; }

std::vector<std::pair<std::string, uint64_t>> Client::Counters() const {
  const Impl::Entry entry(impl_.get());
  if (!entry) return {};
  MutexLock lock(&impl_->mutex_);
  CounterList list = impl_->core_->Counters();
  if (impl_->share_ != nullptr) list.emplace_back("client_share_failed_total", impl_->share_->failures());
  if (impl_->window_ != nullptr) {
    list.emplace_back("client_window_buffers", impl_->window_->allocations());
    list.emplace_back("client_window_buffer_bytes", impl_->window_->allocated_bytes());
    list.emplace_back("client_window_bytes", impl_->window_->region().bytes());
  }
  list.emplace_back("client_router_connect_attempts_total", impl_->link_->connect_attempts());
  return list;
}

}  // namespace cistern
