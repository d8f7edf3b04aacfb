#include <utility>

#include "client/core/client_core_impl.h"

// One answer for all ranks of a request, and whether a plan still holds.
namespace cistern {

OpId ClientCore::Impl::StartAgree(const BlockHash& first_block, const AgreeRequest& request, Nanos deadline,
                                  AgreeDone done) {
  ClientPeer* peer = peers_.Get(peers_.PeerFor(0, first_block));
  // Nodes of an earlier release know nothing of it.
  const bool asks = peer != nullptr && peer->takes_notes;
  Operation* op = asks ? Begin(OpKind::kAdmin, deadline) : nullptr;
  if (op == nullptr) {
    const PartResult why = BeginsNothing() ? PartResult::kCancelled
                           : asks          ? PartResult::kBusy
                                           : PartResult::kPeerGone;
    Refuse([why, done = std::move(done)] { done({.result = why}); });
    return 0;
  }
  const auto fill = [&] {
    request.Encode(op->admin_body);
    op->admin_done = [incarnation = peer->incarnation, done = std::move(done)](const AdminOutcome& answer) {
      AgreeReply reply;
      AgreeOutcome out{.result = answer.result};
      if (out.result == PartResult::kOk && !reply.Decode(answer.body).ok()) out.result = PartResult::kCorrupt;
      if (out.result == PartResult::kOk && reply.incarnation != incarnation) out.result = PartResult::kStale;
      if (out.result == PartResult::kOk) {
        out.tokens = reply.tokens;
        out.asked = reply.asked;
      }
      done(out);
    };
  };
  return Launch(*op, fill, [&] { SendAdmin(*op, FrameType::kAgree, *peer); });
}

OpId ClientCore::Impl::StartRecheck(PlanHandle handle, Nanos deadline, RecheckDone done) {
  PlanState* plan = FindPlan(handle);
  Operation* op = plan != nullptr ? Begin(OpKind::kRecheck, deadline) : nullptr;
  if (op == nullptr) {
    const PartResult why = BeginsNothing()   ? PartResult::kCancelled
                           : plan != nullptr ? PartResult::kBusy
                                             : PartResult::kLeaseExpired;
    Refuse([why, done = std::move(done)] { done(why); });
    return 0;
  }
  const auto fill = [&] {
    op->admin_done = [done = std::move(done)](const AdminOutcome& answer) { done(answer.result); };
    op->plan = plan;
    ++plan->users;
  };
  return Launch(*op, fill, [&] { SendRecheck(*op); });
}

void ClientCore::Impl::SendRecheck(Operation& op) {
  const Nanos now = clock_.Now();
  for (uint32_t i = 0; i < op.plan->set_count; ++i) {
    PartSet& set = op.plan->sets[i];
    ClientPeer* peer = PeerOfSet(set);
    if (peer == nullptr) {
      op.admin_result = PartResult::kPeerGone;
    } else if (now > set.lease_end) {
      op.admin_result = PartResult::kLeaseExpired;
    } else if (Request* request = NewRequest(&op, FrameType::kRenew, i, *peer, now); request == nullptr) {
      op.admin_result = PartResult::kBusy;
    } else {
      ++counters_.renews;
      Transmit(*request);
    }
  }
  AdvanceRecheck(op);
  Pump();
}

void ClientCore::Impl::AdvanceRecheck(Operation& op) {
  if (!op.requests.empty() || op.completed) return;
  if (op.ending && op.admin_result == PartResult::kOk) op.admin_result = op.end_reason;
  DropPlanUser(*op.plan);
  op.plan = nullptr;
  Complete(op);
}

}  // namespace cistern
