#include "client/core/group_plan.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace cistern {
namespace {

constexpr Nanos kDeadlineDefault = 2 * kSecond;

// One call under way. Owners: the callbacks of its open requests.
struct Call {
  Call(ClientCore& c, Clock& k, GroupPlanSpec s, GroupPlanDone d)
      : core(c), clock(k), spec(std::move(s)), done(std::move(d)) {}
  ClientCore& core;
  Clock& clock;
  GroupPlanSpec spec;
  GroupPlanDone done;
  Nanos deadline_at = 0;
  size_t open = 0;
  uint32_t tries = 0;
  std::vector<uint64_t> tails;
  std::vector<GroupPresence> groups;
  std::vector<MissReason> why;  // Of each set.
  std::vector<PartResult> stopped_by;
  std::vector<GroupLoad> loads;
  GroupPlanOutcome out;
  MissReason tail_why = MissReason::kNoTail;
};
using CallPtr = std::shared_ptr<Call>;

void Finish(Call& call) {
  if (call.out.hit.tokens == 0) {
    for (PlanHandle& plan : call.out.history) {
      if (plan != 0) call.core.Release(plan);
      plan = 0;
    }
  }
  call.done(std::move(call.out));
}

void Decide(const CallPtr& call);

void LeaseTail(const CallPtr& call) {
  const uint32_t block_tokens = call->spec.layout->layout.block_tokens;
  const auto blocks = static_cast<uint32_t>(call->out.hit.tokens / block_tokens);
  const StoredParts parts = call->spec.layout->TailAt(call->out.hit.tokens);
  CallSpec spec;
  spec.chain = call->spec.chain;
  spec.chain.blocks = spec.chain.blocks.subspan(0, blocks);
  spec.coords = parts.coords;
  spec.coord_bytes = parts.bytes;
  spec.first = blocks - 1;
  spec.tail_parts = static_cast<uint32_t>(parts.coords.size());
  spec.deadline = std::max<Nanos>(call->deadline_at - call->clock.Now(), 1);
  call->core.Plan(spec, [call, blocks](const PlanOutcome& found) {
    if (!found.status.ok()) call->out.status = found.status;
    if (found.plan != 0) {
      call->out.tail = found.plan;
      return Finish(*call);
    }
    // It went away in the meantime, or its owner did: the next best boundary.
    call->tails[(blocks - 1) / 64] &= ~(uint64_t{1} << ((blocks - 1) % 64));
    call->tail_why = found.why;
    if (++call->tries == kTailTriesMax || call->clock.Now() >= call->deadline_at) call->tails.clear();
    Decide(call);
  });
}

// The rule over what is there.
void Decide(const CallPtr& call) {
  const GroupLayout& layout = *call->spec.layout;
  if (layout.has_tails) call->groups.back().tails = call->tails;
  HitDecision& hit = call->out.hit;
  hit = DecideHit({.block_tokens = layout.layout.block_tokens,
                   .align_tokens = layout.layout.align_tokens,
                   .caller_align_tokens = call->spec.caller_align_tokens,
                   .replay_tokens = layout.layout.replay_tokens,
                   .max_tokens = call->spec.max_tokens},
                  call->groups, call->loads);
  call->out.why = MissReason::kNone;
  call->out.stopped_by = PartResult::kOk;
  if (hit.limit == HitLimit::kHistory) {
    call->out.why = call->why[hit.group];
    call->out.stopped_by = call->stopped_by[hit.group];
  } else if (hit.limit != HitLimit::kCaller) {
    call->out.why = hit.limit == HitLimit::kTail ? call->tail_why : MissReason::kNoTail;
    call->out.stopped_by = PartResult::kMiss;
  }
  if (hit.tokens == 0 || !layout.has_tails || !call->spec.lease) return Finish(*call);
  LeaseTail(call);
}

// One set of history groups is found.
template <typename Outcome>
void Take(const CallPtr& call, size_t set, const Outcome& found) {
  if (!found.status.ok()) call->out.status = found.status;
  call->groups[set].leading_blocks = found.blocks;
  call->why[set] = found.why;
  call->stopped_by[set] = found.stopped_by;
  if (call->tails.size() < found.tails.size()) call->tails.resize(found.tails.size());
  for (size_t i = 0; i < found.tails.size(); ++i) call->tails[i] |= found.tails[i];
  if (--call->open == 0) Decide(call);
}

}  // namespace

OpId PlanGroups(ClientCore& core, Clock& clock, GroupPlanSpec spec, GroupPlanDone done) {
  const GroupLayout& layout = *spec.layout;
  CISTERN_CHECK(!layout.sets.empty());  // Whoever makes layouts for calls refuses those without history.
  auto call = std::make_shared<Call>(core, clock, std::move(spec), std::move(done));
  const size_t sets = layout.sets.size();
  call->deadline_at = clock.Now() + (call->spec.deadline > 0 ? call->spec.deadline : kDeadlineDefault);
  call->open = sets;
  call->why.resize(sets);
  call->stopped_by.resize(sets);
  call->out.history.resize(sets);
  for (const GroupLayout::HistorySet& set : layout.sets) {
    call->groups.push_back({.required = set.required, .lookahead_tokens = set.lookahead_tokens});
  }
  if (layout.has_tails) call->groups.push_back({.tail = true});
  OpId first = 0;
  for (size_t i = 0; i < sets; ++i) {
    CallSpec ask;
    ask.chain = call->spec.chain;
    ask.coords = layout.sets[i].parts.coords;
    ask.coord_bytes = layout.sets[i].parts.bytes;
    ask.deadline = call->spec.deadline;
    ask.probe = call->spec.probe && !call->spec.lease;
    OpId id = 0;
    if (call->spec.lease) {
      id = core.Plan(ask, [call, i](const PlanOutcome& found) {
        call->out.history[i] = found.plan;
        Take(call, i, found);
      });
    } else {
      id = core.Lookup(ask, [call, i](const LookupOutcome& found) { Take(call, i, found); });
    }
    if (i == 0) first = id;
  }
  return first;
}

}  // namespace cistern
