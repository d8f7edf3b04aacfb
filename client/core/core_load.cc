#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/client_core_impl.h"
#include "client/core/segment_list.h"

// Parts into pages: one-sided reads of leased parts, or READ requests whose replies land in the pages; and
// the plans that the leases belong to.
namespace cistern {

ExpectedPart ClientCore::Impl::Expect(const Operation& op, uint32_t page, uint32_t coord) const {
  return {op.chain.blocks[op.first + page], op.coords[coord], op.PartBytes(coord)};
}

// The one place where a part's outcome is counted for its page.
void ClientCore::Impl::RecordPart(Operation& op, uint32_t page, PartResult result) {
  PageState& state = op.pages[page];
  if (result == PartResult::kOk)
    ++state.ok_parts;
  else
    state.worst = WorseOf(state.worst, result);
}

// Moves the operation's answers into a plan of its own.
void ClientCore::Impl::MakePlan(Operation& op) {
  if (op.hit <= op.first) {
    for (uint32_t i = 0; i < op.ask_count; ++i) {
      if (op.asks[i].set.reply.hit_blocks != 0) NoteStranded(op, op.asks[i], 0);
      QueueRelease(op.asks[i].set);
    }
    op.hit = 0;
    return;
  }
  if (free_plans_.empty()) {
    if (plans_.size() == kPlansMax) {
      op.status = absl::ResourceExhaustedError("kPlansMax plans are held");
      op.hit = 0;
      for (uint32_t i = 0; i < op.ask_count; ++i) QueueRelease(op.asks[i].set);
      return;
    }
    auto made = std::make_unique<PlanState>();
    made->slot = static_cast<uint32_t>(plans_.size());
    MakeRoom(plans_);
    free_plans_.reserve(plans_.capacity());  // To release one takes no memory.
    plans_.push_back(std::move(made));
    free_plans_.push_back(plans_.back()->slot);
  }
  PlanState& plan = *plans_[free_plans_.back()];
  plan.handle = ++plan_sequence_ << 16 | plan.slot;
  plan.chain = op.chain;
  plan.coords.assign(op.coords.begin(), op.coords.end());
  plan.coord_bytes.assign(op.coord_bytes.begin(), op.coord_bytes.end());
  plan.blocks = op.hit;
  plan.users = 0;
  plan.released = false;
  plan.set_count = 0;
  plan.first = op.first;
  plan.where.assign(op.hit, {});
  for (uint32_t i = 0; i < op.ask_count; ++i) {
    Ask& ask = op.asks[i];
    if (ask.failure != PartResult::kOk || ask.set.reply.hit_blocks == 0) {
      QueueRelease(ask.set);
      continue;
    }
    uint32_t used = 0;
    for (uint32_t p = ask.first_piece; p < ask.first_piece + ask.pieces; ++p) {
      const Piece& piece = op.pieces[p];
      for (uint32_t b = 0; b < piece.got && piece.first + b < op.hit; ++b) {
        plan.where[piece.first + b] = {plan.set_count, piece.at + b};
        used = piece.at + b + 1;
      }
    }
    if (used < ask.set.reply.hit_blocks) NoteStranded(op, ask, used);
    if (plan.set_count == plan.sets.size()) plan.sets.emplace_back();
    std::swap(plan.sets[plan.set_count++], ask.set);
  }
  free_plans_.pop_back();
  op.plan = &plan;
}

absl::Status ClientCore::Impl::PickParts(const PlanState& plan, absl::Span<const PartCoord> wanted) {
  picked_bytes_.clear();
  for (const PartCoord& coord : wanted) {
    const auto at = std::find(plan.coords.begin(), plan.coords.end(), coord);
    if (at == plan.coords.end()) {
      return absl::InvalidArgumentError(absl::StrCat("coords: group ", coord.group, " slice ", coord.slice,
                                                     " span ", coord.span, " is not in the plan"));
    }
    if (plan.coord_bytes.empty()) continue;
    picked_bytes_.push_back(plan.coord_bytes[static_cast<size_t>(at - plan.coords.begin())]);
  }
  return absl::OkStatus();
}

const PlanState* ClientCore::Impl::FindPlan(PlanHandle handle) const {
  const uint64_t slot = handle & 0xffff;
  if (handle == 0 || slot >= plans_.size()) return nullptr;
  const PlanState* plan = plans_[slot].get();
  return plan->handle == handle && !plan->released ? plan : nullptr;
}
PlanState* ClientCore::Impl::FindPlan(PlanHandle handle) {
  return const_cast<PlanState*>(
      std::as_const(*this).FindPlan(handle));  // NOLINT: same object, not const here.
}

void ClientCore::Impl::ReleasePlan(PlanState& plan) {
  for (uint32_t i = 0; i < plan.set_count; ++i) QueueRelease(plan.sets[i]);
  plan.handle = 0;
  plan.set_count = 0;
  plan.chain.keep.reset();
  plan.chain.blocks = {};
  free_plans_.push_back(plan.slot);
}

void ClientCore::Impl::DropPlanUser(PlanState& plan) {
  --plan.users;
  if (plan.released && plan.users == 0) ReleasePlan(plan);
}

void ClientCore::Impl::StartLoad(Operation& op) {
  const PlanState& plan = *op.plan;
  const auto plan_coords = static_cast<uint32_t>(plan.coords.size());
  op.hit = op.page_count();
  op.bound = op.first + op.hit;
  op.found = true;
  const Nanos now = clock_.Now();
  op.share_end = now + (op.deadline_at - now) / 2;  // The rest is for pulling what others did not bring.
  op.share_quiet_until = std::min(now + kShareQuietMax, op.share_end);
  load_order_.clear();
  for (uint32_t page = 0; page < op.page_count(); ++page) {
    const PlanState::Where where = plan.where[op.first + page];
    for (uint32_t c = 0; c < op.coords.size(); ++c) {
      const auto at = std::find(plan.coords.begin(), plan.coords.end(), op.coords[c]) - plan.coords.begin();
      load_order_.push_back({where.set, where.block * plan_coords + static_cast<uint32_t>(at), page, c});
    }
  }
  const auto order = [](const Transfer& a, const Transfer& b) {
    return a.set != b.set ? a.set < b.set : a.page != b.page ? a.page < b.page : a.coord < b.coord;
  };
  if (plan.set_count > 1) std::sort(load_order_.begin(), load_order_.end(), order);
  for (const Transfer& transfer : load_order_) {
    const ClientPeer* peer = PeerOfSet(plan.sets[transfer.set]);
    if (peer == nullptr) {
      // Another connection or incarnation than the one that leased: not asked at all (F24).
      ++counters_.stale_plans;
      RecordPart(op, transfer.page, PartResult::kStale);
    } else if (Share(op, transfer, *peer)) {
      continue;
    } else if (peer->one_sided) {
      op.transfers.push_back(transfer);
    } else {
      AddRead(op, transfer);
    }
  }
  Advance(op);
  Pump();
}

// Adds a part to the READ request of its set, or begins another where that has its share.
void ClientCore::Impl::AddRead(Operation& op, const Transfer& transfer) {
  MakeRoom(op.reads);  // An ask that names more than there are would be read past their end.
  Ask* ask = op.ask_count > 0 ? &op.asks[op.ask_count - 1] : nullptr;
  if (ask == nullptr || ask->state != AskState::kWaiting ||
      op.reads[ask->first_transfer].set != transfer.set || ask->transfers == kPartsPerAskMax ||
      ask->bytes + op.PartBytes(transfer.coord) > kInlineAskBytesMax) {
    ask = &op.AddAsk();
    ask->first_transfer = static_cast<uint32_t>(op.reads.size());
  }
  ++ask->transfers;
  ask->bytes += op.PartBytes(transfer.coord);
  op.reads.push_back(transfer);
}

void ClientCore::Impl::SendRead(Operation& op, uint32_t index) {
  Ask& ask = op.asks[index];
  const PartSet& set = op.plan->sets[op.reads[ask.first_transfer].set];
  ClientPeer* peer = PeerOfSet(set);
  ask.state = AskState::kAnswered;
  if (op.ending) {
    ask.failure = op.end_reason;
  } else if (peer == nullptr) {
    ask.failure = PartResult::kPeerGone;
  } else if (Tick() > set.lease_end) {
    ask.failure = PartResult::kLeaseExpired;
  } else if (Request* request = NewRequest(&op, FrameType::kRead, index, *peer, ticked_);
             request == nullptr) {
    ask.failure = PartResult::kBusy;
  } else {
    ask.state = AskState::kRequested;
    ++op.asks_open;
    Transmit(*request);
  }
}

void ClientCore::Impl::AdvanceLoad(Operation& op) {
  TakeShared(op);
  bool open = !op.awaited.empty();
  for (uint32_t i = 0; i < op.ask_count; ++i) {
    if (op.asks[i].state == AskState::kWaiting && (op.asks_open < kInlineAsksInFlightMax || op.ending))
      SendRead(op, i);
    Ask& ask = op.asks[i];
    if (ask.state == AskState::kAnswered) {
      ask.state = AskState::kDone;
      for (uint32_t t = 0; t < ask.transfers && ask.failure != PartResult::kOk; ++t) {
        RecordPart(op, op.reads[ask.first_transfer + t].page, ask.failure);
      }
    }
    open |= ask.state != AskState::kDone;
  }
  PumpTransfers(op);
  if (open && op.renew_at == kNever) Renew(op, clock_.Now());
  if (!open && op.transfers_open == 0 && op.next_transfer == op.transfers.size()) FinishPages(op);
}

// Starts one-sided reads, a bounded share a Poll.
void ClientCore::Impl::PumpTransfers(Operation& op) {
  Tick();  // The judge of a lease is the clock after a part has landed: see OnPulled.
  uint64_t budget = kPullBytesPerPoll;
  bool more = false;
  while (op.next_transfer < op.transfers.size() && !more) {
    if (op.transfers_open >= kPullsInFlightMax) break;
    const uint32_t bytes = op.PartBytes(op.transfers[op.next_transfer].coord);
    more = budget < bytes && !op.ending;
    if (!more && StartPull(op, op.next_transfer++)) budget -= bytes;
  }
  if (more) ComeAgain(op);
  if ((more || op.transfers_open != 0) && op.renew_at == kNever) Renew(op, clock_.Now());
}

// True when a read was begun (and perhaps has ended already).
bool ClientCore::Impl::StartPull(Operation& op, uint32_t index) {
  const Transfer transfer = op.transfers[index];
  const PartSet& set = op.SetAt(transfer.set);
  ClientPeer* peer = PeerOfSet(set);
  if (op.ending || op.first + transfer.page >= op.bound) {
    RecordPart(op, transfer.page, op.ending ? op.end_reason : PartResult::kMiss);
    return false;
  }
  const PartDescriptor& part = set.reply.parts[transfer.part];
  PartResult result = VerifyDescriptor(Expect(op, transfer.page, transfer.coord), part);
  if (result == PartResult::kOk && part.trailer_offset == 0)
    result = PartResult::kCorrupt;  // Could not be checked.
  if (result == PartResult::kOk && peer == nullptr) result = PartResult::kPeerGone;
  if (result == PartResult::kOk && ticked_ > set.lease_end) result = PartResult::kLeaseExpired;
  Request* request =
      result == PartResult::kOk ? NewRequest(&op, FrameType::kRead, index, *peer, ticked_) : nullptr;
  if (request == nullptr) {
    RecordPart(op, transfer.page, result == PartResult::kOk ? PartResult::kBusy : result);
    return false;
  }
  request->pull = true;
  ++op.transfers_open;  // From here on its end counts it off, whatever ends it.
  request->sent = true;
  request->sent_at = ticked_;
  pull_target_.clear();
  AppendSlice(op.PageSegments(transfer.page), op.PartAt(transfer.coord), part.length, pull_target_);
  PullRequest pull;
  pull.pull_id = request->id;
  pull.region = part.region;
  pull.offset = part.offset;
  pull.bytes = part.length;
  pull.trailer_offset = part.trailer_offset;
  if (index + 1 < op.transfers.size() && op.transfers[index + 1].set == transfer.set) {
    const PartDescriptor& next = set.reply.parts[op.transfers[index + 1].part];
    if (next.region == part.region) pull.next_offset = next.offset;
  }
  pull.target = pull_target_;
  const absl::Status started = transport_.Pull(peer->id, pull);
  if (!started.ok()) {
    if (Request* still = requests_.Find(pull.pull_id); still != nullptr)
      FailRequest(*still, PartResult::kPeerGone);
  }
  return true;
}

// Asks for more time for the leases that an operation is still reading under, once half of it is gone.
void ClientCore::Impl::Renew(Operation& op, Nanos now) {
  op.renew_at = kNever;
  if (op.ending) return;
  const uint32_t sets = op.plan != nullptr ? op.plan->set_count : op.ask_count;
  for (uint32_t i = 0; i < sets; ++i) {
    PartSet& set = op.SetAt(i);
    if (set.inlined || set.plan_id == 0 || set.renewing || now > set.lease_end) continue;
    ClientPeer* peer = PeerOfSet(set);
    if (peer == nullptr) continue;
    const Nanos due = set.lease_end - set.ttl / 2;
    if (now < due) {
      op.renew_at = std::min(op.renew_at, due);
      continue;
    }
    Request* request = NewRequest(&op, FrameType::kRenew, i, *peer, now);
    if (request == nullptr) continue;
    set.renewing = true;
    ++counters_.renews;
    Transmit(*request);
  }
  next_timer_ = std::min(next_timer_, op.renew_at);
}

void ClientCore::Impl::FinishPages(Operation& op) {
  DropClaims(op);
  GiveUp(op, PartResult::kCancelled);  // Renewals under way.
  op.results.clear();                  // Of an end that ran out of memory.
  op.results.reserve(op.page_count());
  size_t run = 0;
  for (uint32_t page = 0; page < op.page_count(); ++page) {
    const PageState& state = op.pages[page];
    PartResult result = state.worst;
    if (page >= op.hit) {
      while (run < op.runs.size() && op.runs[run].run.first + op.runs[run].run.count <= page) ++run;
      result = page == op.hit                               ? op.stopped_by
               : run < op.runs.size() && op.runs[run].ended ? op.runs[run].why
               : op.ending                                  ? op.end_reason
                                                            : PartResult::kMiss;
      if (result == PartResult::kOk) result = PartResult::kMiss;
    } else if (result == PartResult::kOk && state.ok_parts != op.coords.size()) {
      result = op.ending ? op.end_reason : PartResult::kCorrupt;  // Never OK by default (F11).
    }
    if (result == PartResult::kOk) op.bytes += op.BlockBytes();
    ++counters_.load_pages[static_cast<size_t>(result)];
    op.results.push_back(result);
  }
  counters_.load_bytes += op.bytes;
  if (op.kind == OpKind::kFetch) {
    for (uint32_t i = 0; i < op.ask_count; ++i) {
      if (!op.asks[i].set.inlined) QueueRelease(op.asks[i].set);
    }
  } else if (op.plan != nullptr) {
    DropPlanUser(*std::exchange(op.plan, nullptr));
  }
  LandFlight(op);
  Complete(op);
}

}  // namespace cistern
