#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "client/core/client_core_impl.h"
#include "core/check.h"
#include "core/error_of.h"

// Life of an operation: begun, moved on when marked dirty, ended by completion, deadline or cancel, delivered
// by Poll.
namespace cistern {

ClientCore::Impl::Impl(const ClientCoreOptions& options, Clock& clock, Transport& transport, Random& random)
    : options_(options),
      clock_(clock),
      transport_(transport),
      random_(random),
      peers_(options_, clock, transport, random, counters_),
      plan_id_base_(random.Next() >> 16) {
  options_.lease_ttl = std::clamp<Nanos>(options_.lease_ttl, kMillisecond, kLeaseTtlMax);
  transport.SetHandler(this);
}

ClientCore::Impl::~Impl() { Close(); }

void ClientCore::Impl::Close() {
  closing_ = true;
  // First no byte may land any more, then the callers get their memory back.
  for (size_t i = 0; i < active_.size(); ++i) End(*active_[i], PartResult::kCancelled);
  for (uint32_t slot = 0; slot < peers_.size(); ++slot) {
    ClientPeer* peer = peers_.Get(slot);
    if (peer == nullptr) continue;
    peers_.Fence(*peer, ErrorOf(absl::StatusCode::kCancelled, "client closes"));
    FailPeer(slot);
  }
  // What callbacks ask for now is refused, and told in the next round.
  for (uint32_t round = 0; round < kCloseRoundsMax && RunCallbacks(); ++round) {
  }
  CISTERN_CHECK(active_.empty());
  refused_.clear();
}

absl::Status ClientCore::Impl::WhyRefused() const {
  if (closing_) return absl::CancelledError("the client closes");
  if (BeginsNothing()) return absl::CancelledError("cancelled");
  return absl::ResourceExhaustedError("kOperationsMax calls are outstanding");
}

Operation* ClientCore::Impl::Begin(OpKind kind, Nanos deadline) {
  if (BeginsNothing()) return nullptr;
  if (free_ops_.empty()) {
    if (ops_.size() == kOperationsMax) {
      ++counters_.operations_refused;
      return nullptr;
    }
    AddOperation();
  }
  Operation* op = ops_[free_ops_.back()].get();
  free_ops_.pop_back();
  op->Reset();
  op->id = ++op_sequence_ << 16 | op->slot;
  op->kind = kind;
  op->deadline_at = clock_.Now() + (deadline > 0 ? deadline : options_.default_deadline);
  next_timer_ = std::min(next_timer_, op->deadline_at);
  if (scope_ != nullptr) {
    if (scope_->id == 0) scope_->id = op->id;
    op->call = *scope_;
  }
  active_.push_back(op);
  return op;
}

// Each list has room for all operations: to move one on, or to end it, takes no memory.
void ClientCore::Impl::AddOperation() {
  auto made = std::make_unique<Operation>();
  made->slot = static_cast<uint32_t>(ops_.size());
  MakeRoom(ops_);
  free_ops_.reserve(ops_.capacity());
  for (std::vector<Operation*>* list : {&active_, &dirty_, &again_, &put_queue_, &completed_, &delivering_})
    list->reserve(ops_.capacity());
  ops_.push_back(std::move(made));
  free_ops_.push_back(ops_.back()->slot);
}

void ClientCore::Impl::Refuse(std::function<void()> callback) {
  refused_.push_back({std::move(callback), scope_ != nullptr ? std::optional(*scope_) : std::nullopt});
}

void ClientCore::Impl::CancelCall(OpId id) {
  if (id == 0) return;
  if (scope_ != nullptr && scope_->id == id) scope_->over = true;
  for (Refused& refused : refused_) {
    if (refused.scope.has_value() && refused.scope->id == id) refused.scope->over = true;
  }
  for (size_t i = 0; i < active_.size(); ++i) {
    Operation& op = *active_[i];
    if (op.id != id && op.call.id != id) continue;
    op.call.over = true;  // Also of one that has ended: its callback may want more.
    End(op, PartResult::kCancelled);
  }
}

// Its callback is not run; else as for a cancel.
void ClientCore::Impl::Forsake(Operation& op) {
  op.lookup_done = nullptr;
  op.plan_done = nullptr;
  op.load_done = nullptr;
  op.store_done = nullptr;
  op.admin_done = nullptr;
  try {
    End(op, PartResult::kCancelled);
  } catch (const std::bad_alloc&) {  // The next Timers ends it.
  }
}

void ClientCore::Impl::MarkDirty(Operation& op) {
  if (op.dirty || op.completed) return;
  op.dirty = true;
  dirty_.push_back(&op);
}

void ClientCore::Impl::Advance(Operation& op) {
  if (op.completed) return;
  switch (op.kind) {
    case OpKind::kLookup:
    case OpKind::kPlan:
    case OpKind::kFetch:
      return AdvanceFind(op);
    case OpKind::kLoad:
      return AdvanceLoad(op);
    case OpKind::kStore:
      return AdvanceStore(op);
    case OpKind::kAdmin:
      return AdvanceAdmin(op);
    case OpKind::kRecheck:
      return AdvanceRecheck(op);
    case OpKind::kNone:
      return;
  }
}

// Deadline or cancel. The order matters: first no byte of op lands any more, then it may complete.
void ClientCore::Impl::End(Operation& op, PartResult why) {
  if (op.completed || op.ending) return;
  op.ending = true;
  op.end_reason = why;
  try {
    GiveUp(op, why);
    Advance(op);
  } catch (...) {  // Without memory: it is ended again by the next Timers.
    op.ending = false;
    Break(op);
    throw;
  }
  Pump();
}

void ClientCore::Impl::Complete(Operation& op) {
  if (op.completed) return;
  completed_.push_back(&op);
  op.completed = true;
}

bool ClientCore::Impl::Pump() {
  bool did = false;
  while (peers_.HasNews() || !dirty_.empty()) {
    did = true;
    peers_.TakeUp(slots_);
    for (size_t i = 0; i < slots_.size(); ++i) SendQueued(slots_[i]);
    peers_.TakeFailed(failures_);
    for (size_t i = 0; i < failures_.size(); ++i) FailPeer(failures_[i].slot, failures_[i].last_request);
    if (dirty_.empty()) continue;
    Operation* op = dirty_.back();
    dirty_.pop_back();
    op->dirty = false;
    try {
      Advance(*op);
    } catch (const std::bad_alloc&) {
      Break(*op);
      throw;
    }
  }
  try {
    FlushNotes();
    FlushReleases();
  } catch (const std::bad_alloc&) {  // Leases end by themselves, and notes are but advice.
    notes_.clear();
    releases_.clear();
  }
  return did;
}

// Half a step is not gone on from: the operation ends with what it has.
void ClientCore::Impl::Break(Operation& op) {
  if (op.completed) return;
  op.broken = true;
  next_timer_ = 0;
}

bool ClientCore::Impl::Timers(Nanos now) {
  if (now < next_timer_) return false;
  next_timer_ = kNever;
  try {
    for (size_t i = 0; i < active_.size(); ++i) {
      Operation& op = *active_[i];
      if (op.completed) continue;
      if (now >= op.deadline_at || op.broken) {
        End(op, op.broken ? PartResult::kBusy : PartResult::kDeadline);
        continue;
      }
      if (now >= op.renew_at) Renew(op, now);
      if (now >= op.look_at) MarkDirty(op);
      next_timer_ = std::min({next_timer_, op.deadline_at, op.renew_at, op.look_at});
    }
  } catch (...) {  // Without memory: the others' deadlines are looked at by the next Poll.
    next_timer_ = 0;
    throw;
  }
  return true;
}

bool ClientCore::Impl::RunCallbacks() {
  if (completed_.empty() && refused_.empty()) return false;
  std::exception_ptr thrown;  // By one callback; the others run all the same.
  CallScope* const outer = scope_;
  if (!refused_.empty()) {
    std::vector<Refused> refused;
    refused.swap(refused_);
    for (auto& [callback, scope] : refused) {
      scope_ = scope.has_value() ? &*scope : nullptr;
      try {
        callback();
      } catch (...) {
        thrown = std::current_exception();
      }
    }
    scope_ = outer;
  }
  // Callbacks may submit; what completes meanwhile waits for the next Poll.
  if (!delivering_.empty()) return true;  // Poll from inside a callback.
  delivering_.swap(completed_);
  for (size_t i = 0; i < delivering_.size(); ++i) {
    Operation& op = *delivering_[i];
    active_.erase(std::find(active_.begin(), active_.end(), &op));
    CallScope scope = op.call;
    scope_ = scope.id != 0 ? &scope : nullptr;
    try {
      Deliver(op);
    } catch (...) {
      thrown = std::current_exception();
    }
    scope_ = outer;
    Recycle(op);
  }
  delivering_.clear();
  if (thrown) std::rethrow_exception(thrown);
  return true;
}

void ClientCore::Impl::Deliver(Operation& op) {
  // Null: forsaken.
  const auto tell = [](auto& done, const auto& outcome) {
    if (const auto told = std::exchange(done, nullptr)) told(outcome);
  };
  const PlanHandle plan = op.kind == OpKind::kPlan && op.plan != nullptr ? op.plan->handle : 0;
  if (plan != 0 && op.plan_done == nullptr) return ReleasePlan(*op.plan);
  switch (op.kind) {
    case OpKind::kLookup:
      return tell(op.lookup_done, LookupOutcome{op.status, op.hit, op.stopped_by, op.why, op.tails});
    case OpKind::kPlan:
      return tell(op.plan_done, PlanOutcome{op.status, plan, op.hit, op.stopped_by, op.why, op.tails});
    case OpKind::kLoad:
    case OpKind::kFetch:
      return tell(op.load_done, LoadOutcome{op.status, op.hit, op.results, op.bytes});
    case OpKind::kStore:
      return tell(op.store_done, StoreOutcome{op.status, op.results, op.bytes});
    case OpKind::kAdmin:
    case OpKind::kRecheck:
      return tell(op.admin_done, AdminOutcome{op.admin_result, op.status, op.admin_body});
    case OpKind::kNone:
      return;
  }
}

void ClientCore::Impl::Recycle(Operation& op) {
  op.kind = OpKind::kNone;
  op.id = 0;
  op.chain.keep.reset();
  free_ops_.push_back(op.slot);
}

}  // namespace cistern
