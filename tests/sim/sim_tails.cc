// Calls about layouts of several groups: hits by the hit rule, and tails.
#include <algorithm>
#include <utility>

#include "client/core/group_plan.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_client.h"

namespace cistern {
namespace {

constexpr uint32_t kPagesMax = 24;

// Some ranks' share of a tail: all of it, or one half.
void TakeShare(Random& random, StoredParts& parts) {
  if (random.Chance(0.6) || parts.coords.size() < 2) return;
  const auto half = static_cast<ptrdiff_t>(parts.coords.size() / 2);
  if (random.Chance(0.5)) {
    parts.coords.erase(parts.coords.begin(), parts.coords.begin() + half);
    parts.bytes.erase(parts.bytes.begin(), parts.bytes.begin() + half);
  } else {
    parts.coords.resize(static_cast<size_t>(half));
    parts.bytes.resize(static_cast<size_t>(half));
  }
}

}  // namespace

void SimClient::StoreTail(const SimChain& chain) {
  Random& random = world_.random;
  const SimLayout& layout = LayoutOf(chain);
  const auto steps = static_cast<uint32_t>(chain.blocks.size() / kSimAlignBlocks);
  if (layout.groups == nullptr || steps == 0) return;
  const auto blocks = kSimAlignBlocks * (1 + static_cast<uint32_t>(random.Below(steps)));
  StoredParts parts = layout.groups->TailAt(uint64_t{blocks} * kSimBlockTokens);
  const auto whole = static_cast<uint32_t>(parts.coords.size());
  TakeShare(random, parts);
  const Nanos deadline = DrawDeadline();
  const std::shared_ptr<Call> call = Begin("store", chain, deadline);
  call->asked = 1;
  call->pages = std::make_shared<SimPages>(chain, parts, blocks - 1, 1, random);
  call->pages->FillWithContent();
  world_.log.Event("store tail", host_, call->number, blocks);
  CallSpec spec = Spec(chain, blocks, deadline);
  spec.coords = parts.coords;
  spec.coord_bytes = parts.bytes;
  spec.tail_parts = whole;
  spec.junction = random.Chance(0.2);
  const uint32_t older = blocks > kSimAlignBlocks && random.Chance(0.5) ? blocks - kSimAlignBlocks : 0;
  const bool all_parts = parts.coords.size() == whole;
  const uint64_t nonce = process_->nonce;
  const OpId op = process_->core->Store(
      spec, blocks - 1, call->pages->const_view(),
      [this, call, blocks, older, all_parts, nonce, view = spec.chain](const StoreOutcome& out) {
        const PartResult result = out.pages.empty() ? PartResult::kInvalid : out.pages[0];
        world_.log.Event("tail stored", host_, call->number, static_cast<uint64_t>(result));
        CountResult(result, "store");
        const bool there = result == PartResult::kOk || result == PartResult::kExists;
        if (there) world_.log.Mark("tail_stored");
        if (there && all_parts && world_.options.calm) chains_.MarkTail(*call->chain, blocks);
        if (there && older != 0 && process_ != nullptr && process_->nonce == nonce) {
          process_->core->Supersede(view, older - 1, view.blocks[older].hash.Prefix64());
        }
        End(*call);
      });
  MaybeCancel(op);
}

// The hit rule's answer must be a boundary that everything agrees on, and, where nothing can go away, no less
// than what is known to be there.
void SimClient::JudgeGroups(const Call& call, uint32_t tail_blocks, const GroupPlanOutcome& out) {
  const uint64_t blocks = out.hit.tokens / kSimBlockTokens;
  CountResult(out.stopped_by, call.kind);
  if (out.hit.tokens % (uint64_t{kSimBlockTokens} * kSimAlignBlocks) != 0)
    world_.log.Fail(host_ + ": a hit that is no multiple of the layout's alignment");
  if (blocks > call.asked) world_.log.Fail(host_ + ": a hit longer than what was asked");
  if ((out.tail != 0) != (blocks != 0))
    world_.log.Fail(host_ + ": a hit without its tail, or a tail without a hit");
  // A call that was refused or cancelled has said so; nothing was missed.
  if (blocks < call.asked && out.why == MissReason::kNone && out.hit.limit != HitLimit::kCaller &&
      out.status.ok())
    world_.log.Fail(host_ + ": a miss that does not say why");
  if (blocks < tail_blocks && !call.cancelled) {
    world_.log.Fail(host_ + ": a hit of " + std::to_string(blocks) + " blocks where " +
                    std::to_string(tail_blocks) +
                    " and their tail are visible: " + std::string(MissReasonName(out.why)));
  }
  world_.log.Mark(blocks == 0 ? "tail_miss" : "tail_hit");
  if (out.hit.history_tokens > out.hit.tokens) world_.log.Mark("history_beyond_its_tails");
}

void SimClient::PlanGroupsOf(const SimChain& chain) {
  const SimLayout& layout = LayoutOf(chain);
  if (layout.groups == nullptr) return;
  const auto blocks = static_cast<uint32_t>(chain.blocks.size());
  const Nanos deadline = DrawDeadline();
  const std::shared_ptr<Call> call = Begin("plan", chain, deadline);
  call->asked = blocks;
  const uint32_t tail_blocks = world_.options.calm ? chain.TailVisible() : 0;
  GroupPlanSpec spec;
  spec.chain = Spec(chain, blocks, deadline).chain;
  spec.layout = layout.groups;
  spec.max_tokens = uint64_t{blocks} * kSimBlockTokens;
  spec.deadline = deadline == 0 ? call->deadline : deadline;
  const uint64_t nonce = process_->nonce;
  world_.log.Event("plan groups", host_, call->number, blocks);
  PlanGroups(
      *process_->core, clock_, std::move(spec), [this, call, tail_blocks, nonce](GroupPlanOutcome out) {
        world_.log.Event("planned groups", host_, call->number, out.hit.tokens, MissReasonName(out.why));
        JudgeGroups(*call, tail_blocks, out);
        End(*call);
        if (out.hit.tokens == 0 || process_ == nullptr || process_->nonce != nonce) return;
        LoadGroups(*call->chain, out);
      });
}

// Loads what the hit promises: the last blocks of the history, and the tail; then lets go of all.
void SimClient::LoadGroups(const SimChain& chain, const GroupPlanOutcome& out) {
  const auto blocks = static_cast<uint32_t>(out.hit.tokens / kSimBlockTokens);
  if (!settled_) {
    const uint32_t first = blocks - std::min(blocks, kPagesMax);
    LoadPages(chain, LayoutOf(chain).parts, out.history.front(), first, blocks - first);
    LoadPages(chain, LayoutOf(chain).groups->TailAt(out.hit.tokens), out.tail, blocks - 1, 1);
  }
  for (const PlanHandle plan : out.history) process_->core->Release(plan);  // Loads under way hold them.
  process_->core->Release(out.tail);
  dirty_ = true;
}

void SimClient::LoadPages(const SimChain& chain, const StoredParts& parts, PlanHandle plan, uint32_t first,
                          uint32_t count) {
  const Nanos deadline = DrawDeadline();
  const std::shared_ptr<Call> call = Begin("load", chain, deadline);
  call->asked = count;
  call->pages = std::make_shared<SimPages>(chain, parts, first, count, world_.random);
  call->pages->PoisonForLoad();
  process_->core->Load(plan, first, call->pages->view(), parts.coords, deadline,
                       [this, call](const LoadOutcome& out) {
                         JudgePages(*call, out.pages, out.bytes, false);
                         End(*call);
                       });
}

}  // namespace cistern
