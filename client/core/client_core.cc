#include "client/core/client_core.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/client_core_impl.h"
#include "client/core/segment_list.h"

// The public face: checks what a caller asks for, fills an operation, starts it.
namespace cistern {
namespace {

absl::Status CheckSizes(absl::Span<const PartCoord> coords, absl::Span<const uint32_t> bytes) {
  if (bytes.size() != coords.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("coord_bytes: ", bytes.size(), " sizes for ", coords.size(), " coords"));
  }
  for (const uint32_t size : bytes) {
    if (size >= kPartBytesMin && size <= kPartBytesMax) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("coord_bytes: ", size, " is not in [", kPartBytesMin, ", ", kPartBytesMax, "]"));
  }
  return absl::OkStatus();
}

absl::Status CheckChain(const ChainView& chain, absl::Span<const PartCoord> coords,
                        absl::Span<const uint32_t> bytes) {
  if (!bytes.empty()) {
    if (absl::Status status = CheckSizes(coords, bytes); !status.ok()) return status;
  } else if (chain.part_bytes < kPartBytesMin || chain.part_bytes > kPartBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("part_bytes: ", chain.part_bytes, " is not in [",
                                                   kPartBytesMin, ", ", kPartBytesMax, "]"));
  }
  if (coords.empty() || coords.size() > kCoordsPerRequestMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("coords: ", coords.size(), " is not in [1, ", kCoordsPerRequestMax, "]"));
  }
  return absl::OkStatus();
}

absl::Status CheckCall(const CallSpec& call) {
  absl::Status status = CheckChain(call.chain, call.coords, call.coord_bytes);
  const size_t blocks = call.chain.blocks.size();
  if (status.ok() && call.first > blocks) {
    status = absl::InvalidArgumentError(absl::StrCat("first: block ", call.first, " of a chain of ", blocks));
  }
  if (status.ok() && call.tail_parts != 0 && (call.tail_parts < call.coords.size() || blocks == 0)) {
    status = absl::InvalidArgumentError("tail_parts: fewer than the coords, or of an empty chain");
  }
  return status;
}

uint64_t BlockBytes(const ChainView& chain, size_t coords, absl::Span<const uint32_t> bytes) {
  if (bytes.empty()) return uint64_t{chain.part_bytes} * coords;
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

template <typename View>
absl::Status CheckPages(const View& pages, uint64_t block_bytes, uint64_t first, uint64_t blocks) {
  if (first + pages.size() > blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("pages: blocks [", first, ", ", first + pages.size(), ") of a chain of ", blocks));
  }
  uint32_t begin = 0;
  for (size_t i = 0; i < pages.ends.size(); ++i) {
    const uint32_t end = pages.ends[i];
    if (end < begin || end > pages.segments.size())
      return absl::InvalidArgumentError("pages: segment list out of order");
    uint64_t bytes = 0;
    for (uint32_t s = begin; s < end; ++s) {
      if (pages.segments[s].data == nullptr)
        return absl::InvalidArgumentError(absl::StrCat("pages[", i, "].data: null"));
      const uint64_t more = pages.segments[s].bytes;
      bytes = more > UINT64_MAX - bytes ? UINT64_MAX : bytes + more;  // No block is that long.
    }
    if (bytes != block_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("pages[", i, "].bytes: ", bytes, ", the block's parts have ", block_bytes));
    }
    begin = end;
  }
  return absl::OkStatus();
}

void FillCall(Operation& op, const CallSpec& call) {
  op.chain = call.chain;
  op.SetParts(call.coords, call.coord_bytes);
  op.probe = call.probe;
  op.tail_parts = call.tail_parts;
  op.junction = call.junction;
  op.retention = call.retention;
}

void FillPages(Operation& op, absl::Span<const uint32_t> ends) {
  op.ends.assign(ends.begin(), ends.end());
  op.pages.assign(ends.size(), PageState{});
}

}  // namespace

ClientCore::ClientCore(const ClientCoreOptions& options, Clock& clock, Transport& transport, Random& random)
    : impl_(std::make_unique<Impl>(options, clock, transport, random)) {}
ClientCore::~ClientCore() = default;
void ClientCore::Close() { impl_->Close(); }

void ClientCore::SetMap(const ClusterMap& map) {
  impl_->peers_.SetMap(map);
  impl_->Pump();
}

void ClientCore::SetCredentials(std::string ticket, const std::array<uint8_t, 32>& namespace_secret,
                                const ClusterId& cluster) {
  impl_->namespace_secret_ = namespace_secret;
  impl_->peers_.SetCredentials(std::move(ticket), cluster);
}
const ClusterMap& ClientCore::map() const { return impl_->peers_.map(); }
bool ClientCore::has_credentials() const { return impl_->peers_.has_ticket(); }
const std::array<uint8_t, 32>& ClientCore::namespace_secret() const { return impl_->namespace_secret_; }

OpId ClientCore::Lookup(const CallSpec& call, LookupDone done) {
  absl::Status status = CheckCall(call);
  Operation* op = status.ok() ? impl_->Begin(OpKind::kLookup, call.deadline) : nullptr;
  if (op == nullptr) {
    if (status.ok()) status = impl_->WhyRefused();
    impl_->Refuse([status, done = std::move(done)] { done(LookupOutcome{.status = status}); });
    return 0;
  }
  const auto fill = [&] {
    FillCall(*op, call);
    op->limit = static_cast<uint32_t>(call.chain.blocks.size());
    op->lookup_done = std::move(done);
  };
  return impl_->Launch(*op, fill, [&] { impl_->StartFind(*op); });
}

OpId ClientCore::Plan(const CallSpec& call, PlanDone done) {
  absl::Status status = CheckCall(call);
  Operation* op = status.ok() ? impl_->Begin(OpKind::kPlan, call.deadline) : nullptr;
  if (op == nullptr) {
    if (status.ok()) status = impl_->WhyRefused();
    impl_->Refuse([status, done = std::move(done)] { done(PlanOutcome{.status = status}); });
    return 0;
  }
  const auto fill = [&] {
    FillCall(*op, call);
    op->limit = static_cast<uint32_t>(call.chain.blocks.size());
    op->first = call.first;
    op->plan_done = std::move(done);
  };
  return impl_->Launch(*op, fill, [&] { impl_->StartFind(*op); });
}

OpId ClientCore::Fetch(const CallSpec& call, const PageView& pages, LoadDone done) {
  absl::Status status = CheckCall(call);
  const uint64_t block_bytes = BlockBytes(call.chain, call.coords.size(), call.coord_bytes);
  if (status.ok()) status = CheckPages(pages, block_bytes, 0, call.chain.blocks.size());
  Operation* op = status.ok() ? impl_->Begin(OpKind::kFetch, call.deadline) : nullptr;
  if (op == nullptr) {
    if (status.ok()) status = impl_->WhyRefused();
    impl_->Refuse([status, done = std::move(done)] { done(LoadOutcome{.status = status, .pages = {}}); });
    return 0;
  }
  const auto fill = [&] {
    FillCall(*op, call);
    FillPages(*op, pages.ends);
    op->segments.assign(pages.segments.begin(), pages.segments.end());
    op->limit = static_cast<uint32_t>(pages.size());
    op->load_done = std::move(done);
  };
  return impl_->Launch(*op, fill, [&] {
    if (!impl_->JoinFlight(*op)) impl_->StartFind(*op);
  });
}

OpId ClientCore::Load(PlanHandle handle, uint32_t first, const PageView& pages,
                      absl::Span<const PartCoord> coords, Nanos deadline, LoadDone done,
                      absl::Span<const uint8_t> shared) {
  PlanState* plan = impl_->FindPlan(handle);
  const absl::Span<const PartCoord> wanted =
      coords.empty() && plan != nullptr ? absl::MakeConstSpan(plan->coords) : coords;
  absl::Status status;
  if (plan == nullptr) {
    status = absl::FailedPreconditionError("plan: released, or never granted");
  } else {
    status = impl_->PickParts(*plan, wanted);
    if (status.ok()) status = CheckChain(plan->chain, wanted, impl_->picked_bytes_);
    if (status.ok() && first < plan->first) {
      status = absl::InvalidArgumentError(absl::StrCat("first: the plan begins at block ", plan->first));
    }
    if (status.ok()) {
      const uint64_t bytes = BlockBytes(plan->chain, wanted.size(), impl_->picked_bytes_);
      status = CheckPages(pages, bytes, first, plan->blocks);
    }
  }
  Operation* op = status.ok() ? impl_->Begin(OpKind::kLoad, deadline) : nullptr;
  if (op == nullptr) {
    if (status.ok()) status = impl_->WhyRefused();
    impl_->Refuse([status, done = std::move(done)] { done(LoadOutcome{.status = status, .pages = {}}); });
    return 0;
  }
  const auto fill = [&] {
    op->chain = plan->chain;
    op->SetParts(wanted, impl_->picked_bytes_);
    FillPages(*op, pages.ends);
    op->segments.assign(pages.segments.begin(), pages.segments.end());
    op->first = first;
    if (shared.size() == wanted.size()) op->shared.assign(shared.begin(), shared.end());
    op->load_done = std::move(done);
    op->plan = plan;
    ++plan->users;
  };
  return impl_->Launch(*op, fill, [&] { impl_->StartLoad(*op); });
}

OpId ClientCore::Store(const CallSpec& call, uint32_t first, const ConstPageView& pages, StoreDone done) {
  absl::Status status = CheckCall(call);
  const uint64_t block_bytes = BlockBytes(call.chain, call.coords.size(), call.coord_bytes);
  if (status.ok()) status = CheckPages(pages, block_bytes, first, call.chain.blocks.size());
  Operation* op = status.ok() ? impl_->Begin(OpKind::kStore, call.deadline) : nullptr;
  if (op == nullptr) {
    if (status.ok()) status = impl_->WhyRefused();
    impl_->Refuse([status, done = std::move(done)] { done(StoreOutcome{.status = status, .pages = {}}); });
    return 0;
  }
  const auto fill = [&] {
    FillCall(*op, call);
    FillPages(*op, pages.ends);
    op->const_segments.assign(pages.segments.begin(), pages.segments.end());
    op->first = first;
    op->limit = first + static_cast<uint32_t>(pages.size());
    op->store_done = std::move(done);
  };
  return impl_->Launch(*op, fill, [&] { impl_->StartStore(*op); });
}

void ClientCore::Release(PlanHandle handle) {
  PlanState* plan = impl_->FindPlan(handle);
  if (plan == nullptr) return;
  plan->released = true;
  if (plan->users == 0) impl_->ReleasePlan(*plan);
  impl_->FlushReleases();
}

void ClientCore::Forget(PlanHandle handle) {
  PlanState* plan = impl_->FindPlan(handle);
  if (plan == nullptr) return;
  for (uint32_t i = 0; i < plan->set_count; ++i) plan->sets[i].plan_id = 0;
  Release(handle);
}

OpId ClientCore::Agree(const BlockHash& first_block, const AgreeRequest& request, Nanos deadline,
                       AgreeDone done) {
  return impl_->StartAgree(first_block, request, deadline, std::move(done));
}

OpId ClientCore::Recheck(PlanHandle plan, Nanos deadline, RecheckDone done) {
  return impl_->StartRecheck(plan, deadline, std::move(done));
}

void ClientCore::Supersede(const ChainView& chain, uint32_t block, uint64_t successor) {
  impl_->NoteSuperseded(chain, block, successor);
  impl_->FlushNotes();
}

void ClientCore::Cancel(OpId id) { impl_->CancelCall(id); }

ClientCore::OneCall::OneCall(ClientCore& core)
    : core_(core), before_(std::exchange(core.impl_->scope_, &scope_)) {}
ClientCore::OneCall::~OneCall() { core_.impl_->scope_ = before_; }

std::string_view ClientCore::PlanOwner(PlanHandle handle, uint32_t index) const {
  const PlanState* plan = impl_->FindPlan(handle);
  if (plan == nullptr || index < plan->first || index >= plan->blocks) return {};
  const PartSet& set = plan->sets[plan->where[index].set];
  const ClientPeer* peer = impl_->peers_.Get(set.peer);
  return peer != nullptr && peer->serial == set.serial ? std::string_view(peer->node) : std::string_view{};
}

namespace {

AdminDone Named(AdminDone done) {
  return done ? std::move(done) : [](const AdminOutcome&) {};
}

}  // namespace

OpId ClientCore::FetchNodeStats(std::string_view node, uint32_t shard, Nanos deadline, AdminDone done) {
  return impl_->StartAdmin(node, shard, FrameType::kStats, {}, deadline, Named(std::move(done)));
}

OpId ClientCore::Drop(std::string_view node, uint32_t shard, const DropRequest& drop, Nanos deadline,
                      AdminDone done) {
  Bytes body;
  drop.Encode(body);
  return impl_->StartAdmin(node, shard, FrameType::kDrop, body, deadline, Named(std::move(done)));
}

OpId ClientCore::Quota(std::string_view node, uint32_t shard, const QuotaRequest& quota, Nanos deadline,
                       AdminDone done) {
  Bytes body;
  quota.Encode(body);
  return impl_->StartAdmin(node, shard, FrameType::kQuota, body, deadline, Named(std::move(done)));
}

void ClientCore::ConnectAll() {
  if (impl_->closing_) return;
  const Nanos now = impl_->clock_.Now();
  for (const NodeEntry& node : impl_->peers_.map().nodes) {
    for (uint32_t shard = 0; shard < node.shards.size(); ++shard) {
      ClientPeer* peer = impl_->peers_.Get(impl_->peers_.PeerOf(node.id, shard));
      if (peer != nullptr) (void)impl_->peers_.Admit(*peer, now);
    }
  }
}

bool ClientCore::Poll() {
  Impl& impl = *impl_;
  if (impl.closing_) return impl.RunCallbacks();
  for (Operation* op : impl.again_) {
    op->again = false;
    impl.MarkDirty(*op);
  }
  bool did = !impl.again_.empty();
  impl.again_.clear();
  impl.flush_at_ = kNever;
  impl.put_budget_ = kPutBytesPerPoll;
  did |= impl.transport_.Poll();
  const Nanos now = impl.clock_.Now();
  did |= impl.peers_.Service(now);
  did |= impl.Pump();
  did |= impl.ServePuts() && impl.Pump();
  did |= impl.Timers(now);
  did |= impl.RunCallbacks();
  return did;
}

Nanos ClientCore::NextWake() const {
  const Impl& impl = *impl_;
  if (!impl.completed_.empty() || !impl.refused_.empty() || !impl.again_.empty() || !impl.dirty_.empty() ||
      !impl.put_queue_.empty() || impl.peers_.HasNews()) {
    return 0;
  }
  return std::min({impl.next_timer_, impl.peers_.NextWake(), impl.flush_at_});
}

size_t ClientCore::outstanding() const { return impl_->active_.size() + impl_->refused_.size(); }
bool ClientCore::HasGonePeers() const { return impl_->peers_.HasGone(); }
std::vector<GonePeer> ClientCore::TakeGonePeers() { return impl_->peers_.TakeGone(); }
bool ClientCore::TakeTicketRefused() { return impl_->peers_.TakeTicketRefused(); }
std::vector<PeerRow> ClientCore::PeerRows() const { return impl_->peers_.Rows(); }

PeerId ClientCore::PeerOf(std::string_view node, uint32_t shard) const {
  const ClientPeer* peer = impl_->peers_.Get(impl_->peers_.PeerOf(node, shard));
  return peer != nullptr && peer->state == PeerState::kUp ? peer->id : 0;
}

}  // namespace cistern
