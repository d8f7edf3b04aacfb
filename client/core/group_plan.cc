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
  // What the ranks of a request agreed on.
  std::optional<uint64_t> agreed;
  std::vector<PlanHandle> before;  // Plans of the hit that this rank had found by itself.
};
using CallPtr = std::shared_ptr<Call>;

void Propose(const CallPtr& call);
void Decide(const CallPtr& call);
OpId AskSets(const CallPtr& call);

void LetGo(Call& call, std::vector<PlanHandle>& plans) {
  for (PlanHandle& plan : plans) {
    if (plan != 0) call.core.Release(plan);
    plan = 0;
  }
}

void Finish(const CallPtr& call) {
  GroupPlanOutcome& out = call->out;
  if (!out.status.ok()) {  // Nobody takes a plan of it.
    out.history.push_back(std::exchange(out.tail, 0));
    LetGo(*call, out.history);
    LetGo(*call, call->before);
    out.history.clear();
    out.hit = {};
    return call->done(std::move(out));
  }
  if (call->spec.request.has_value() && !call->agreed.has_value() && !call->spec.chain.blocks.empty()) {
    return Propose(call);
  }
  if (call->agreed.has_value() && out.hit.tokens != *call->agreed) {
    out.lost = true;
    if (out.tail != 0) call->core.Release(std::exchange(out.tail, 0));
    LetGo(*call, out.history);
    out.hit.tokens = out.hit.resume_tokens = *call->agreed;
  }
  if (out.hit.tokens == 0) LetGo(*call, out.history);
  LetGo(*call, call->before);
  call->done(std::move(out));
}

// One answer for all ranks. A rank whose own hit has another length finds it again at the length agreed on,
// still under the leases of its own: whoever proposed it has it leased.
void Propose(const CallPtr& call) {
  const AgreeRequest ask{.request = *call->spec.request, .propose = true, .tokens = call->out.hit.tokens};
  const Nanos left = std::max<Nanos>(call->deadline_at - call->clock.Now(), 1);
  call->core.Agree(call->spec.chain.blocks[0].hash, ask, left, [call](const AgreeOutcome& answer) {
    GroupPlanOutcome& out = call->out;
    out.asked = answer.asked;
    call->agreed = answer.result == PartResult::kOk ? answer.tokens : 0;
    if (*call->agreed == out.hit.tokens) return Finish(call);
    call->before = std::exchange(out.history, {});
    call->before.push_back(std::exchange(out.tail, 0));
    if (answer.result != PartResult::kOk) {
      out.stopped_by = answer.result;
      out.why = MissReason::kUnreachable;
    }
    if (*call->agreed == 0) {
      out.hit.tokens = out.hit.resume_tokens = 0;
      return Finish(call);
    }
    call->spec.max_tokens = *call->agreed;
    (void)AskSets(call);
  });
}

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
    call->out.status = found.status;
    call->out.tail = found.plan;
    if (!found.status.ok() || found.plan != 0) return Finish(call);
    // It went away in the meantime, or its owner did: the next best boundary.
    call->tails[(blocks - 1) / 64] &= ~(uint64_t{1} << ((blocks - 1) % 64));
    call->tail_why = found.why;
    if (++call->tries == kTailTriesMax || call->clock.Now() >= call->deadline_at) call->tails.clear();
    Decide(call);
  });
}

// The rule over what is there.
void Decide(const CallPtr& call) {
  if (!call->out.status.ok()) return Finish(call);
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
  } else if (hit.limit == HitLimit::kTail && (!layout.has_tails || hit.group + 1 != call->groups.size())) {
    call->out.why = MissReason::kNone;  // No breakpoint leads further.
  } else if (hit.limit != HitLimit::kCaller) {
    call->out.why = hit.limit == HitLimit::kTail ? call->tail_why : MissReason::kNoTail;
    call->out.stopped_by = PartResult::kMiss;
  }
  if (hit.tokens == 0 || !layout.has_tails || !call->spec.lease) return Finish(call);
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

// Every set of history groups at once.
OpId AskSets(const CallPtr& call) {
  const GroupLayout& layout = *call->spec.layout;
  const size_t sets = layout.sets.size();
  call->open = sets;
  call->tries = 0;
  call->why.assign(sets, MissReason::kNone);
  call->stopped_by.assign(sets, PartResult::kOk);
  call->out.history.assign(sets, 0);
  call->tails.clear();
  call->groups.clear();
  for (const GroupLayout::HistorySet& set : layout.sets) {
    call->groups.push_back({.required = set.required, .lookahead_tokens = set.lookahead_tokens});
  }
  if (!call->spec.boundaries.empty()) {  // As a tail that is there at some boundaries alone.
    call->groups.push_back({.tail = true, .tails = call->spec.boundaries});
  }
  if (layout.has_tails) call->groups.push_back({.tail = true});
  OpId first = 0;
  for (size_t i = 0; i < sets; ++i) {
    CallSpec ask;
    ask.chain = call->spec.chain;
    ask.coords = layout.sets[i].parts.coords;
    ask.coord_bytes = layout.sets[i].parts.bytes;
    ask.deadline = std::max<Nanos>(call->deadline_at - call->clock.Now(), 1);
    ask.probe = call->spec.probe && !call->spec.lease;
    OpId id = 0;
    if (call->spec.lease) {
      id = call->core.Plan(ask, [call, i](const PlanOutcome& found) {
        call->out.history[i] = found.plan;
        Take(call, i, found);
      });
    } else {
      id = call->core.Lookup(ask, [call, i](const LookupOutcome& found) { Take(call, i, found); });
    }
    if (first == 0) first = id;
  }
  return first;
}

}  // namespace

OpId PlanGroups(ClientCore& core, Clock& clock, GroupPlanSpec spec, GroupPlanDone done) {
  const GroupLayout& layout = *spec.layout;
  CISTERN_CHECK(!layout.sets.empty());  // Whoever makes layouts for calls refuses those without history.
  auto call = std::make_shared<Call>(core, clock, std::move(spec), std::move(done));
  call->deadline_at = clock.Now() + (call->spec.deadline > 0 ? call->spec.deadline : kDeadlineDefault);
  return AskSets(call);
}

void ReleaseGroups(ClientCore& core, const GroupPlanOutcome& hit, const BlockHash& first_block,
                   const std::optional<BlockHash>& request, uint32_t ranks) {
  std::vector<PlanHandle> plans = hit.history;
  plans.push_back(hit.tail);
  std::erase(plans, PlanHandle{0});
  if (plans.empty()) return;
  const auto release = [&core, plans = std::move(plans)](bool all_asked) {
    for (const PlanHandle plan : plans) all_asked ? core.Release(plan) : core.Forget(plan);
  };
  if (!request.has_value() || ranks <= hit.asked) return release(true);
  const AgreeRequest ask{.request = *request, .propose = false, .tokens = 0};
  core.Agree(first_block, ask, 0, [release, ranks](const AgreeOutcome& answer) {
    release(answer.result == PartResult::kOk && answer.asked >= ranks);
  });
}

}  // namespace cistern
