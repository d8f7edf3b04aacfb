#include <utility>

#include "cistern/client.h"
#include "client/client_impl.h"
#include "client/client_telling.h"
#include "client/convert.h"
#include "client/rank_split.h"
#include "core/breakpoints.h"
#include "proto/layout_catalog.h"

// Layouts of several groups: histories of several part sizes, windows and states.
namespace cistern {
namespace {

// A breakpoint may stand in the part-filled block that a chain leaves out.
uint64_t PromptTokensMax(const Chain& chain) {
  return chain.rep() == nullptr ? 0 : (uint64_t{chain.blocks()} + 1) * chain.layout().block_tokens - 1;
}

}  // namespace

Result<Layout> NamedLayout(const std::string& name, uint32_t scale) {
  if (scale < 1 || scale > kLayoutScaleMax) {
    return Status(Code::kInvalidArgument, "scale: " + std::to_string(scale) + " is not in [1, " +
                                              std::to_string(kLayoutScaleMax) + "]");
  }
  absl::StatusOr<ShippedLayout> found = FindLayout(name);
  if (!found.ok()) return ToPublic(found.status());
  Layout out;
  out.model = name;
  out.block_tokens = found->layout.block_tokens;
  out.groups = MakeGroupLayout(std::move(found->layout), scale);
  if (out.groups->sets.empty()) {
    return Status(Code::kInvalidArgument, "layout " + name + ": no history group; a hit ends on a history");
  }
  return out;
}

std::vector<LayoutGroup> LayoutGroups(const Layout& layout) {
  if (layout.groups == nullptr) return {{"kv", "history"}};
  std::vector<LayoutGroup> out;
  for (const layout::Group& group : layout.groups->layout.groups) {
    out.push_back({group.name, std::string(layout::FamilyName(group.family))});
  }
  return out;
}

uint64_t Hit::tokens() const {
  if (rep_ == nullptr) return 0;
  return rep_->chain.grouped() ? rep_->decision.tokens
                               : uint64_t{rep_->blocks} * rep_->chain.layout().block_tokens;
}
uint64_t Hit::resume_tokens() const {
  return rep_ != nullptr && rep_->chain.grouped() ? rep_->decision.resume_tokens : tokens();
}
uint64_t Hit::history_tokens() const {
  return rep_ != nullptr && rep_->chain.grouped() ? rep_->decision.history_tokens : tokens();
}
const char* Hit::miss_reason() const {
  return MissReasonName(rep_ == nullptr ? MissReason::kNeverSeen : rep_->why).data();
}

Result<std::vector<uint64_t>> Client::CommitMarks(const Chain& chain, std::span<const uint64_t> breakpoints) {
  if (chain.rep() == nullptr) return Status(Code::kInvalidArgument, "chain: empty");
  const auto groups = Impl::GroupsOf(chain);
  const std::vector<uint64_t> points(breakpoints.begin(), breakpoints.end());
  if (Status status = ToPublic(CheckBreakpoints(points, PromptTokensMax(chain))); !status.ok()) return status;
  return cistern::CommitMarks(points, uint64_t{chain.blocks()} * groups->layout.block_tokens,
                              std::max(groups->align_tokens(), groups->layout.block_tokens));
}

Status Client::Impl::Share(const Chain& chain, const CallOptions& options, std::vector<GroupShare>& out) {
  absl::StatusOr<std::vector<GroupShare>> share =
      ShareOf(chain.rep()->layout.groups->layout, {.tp = options.tp,
                                                   .tp_rank = options.tp_rank,
                                                   .layer_first = options.layer_first,
                                                   .layer_end = options.layer_end,
                                                   .dcp = options.dcp,
                                                   .pcp = options.pcp});
  if (!share.ok()) return ToPublic(share.status());
  out = *std::move(share);
  return {};
}

// Whether ranks fit is judged first: those that do not get a clean miss, without asking anybody.
OpId Client::Impl::SubmitGroups(const Chain& chain, const CallOptions& options, bool lease,
                                GroupPlanDone sink, bool probe) {
  std::vector<GroupShare> share;
  std::optional<BlockHash> request;
  Status status = lease ? NameRequest(chain, options, request) : Status();
  if (status.ok()) status = ToPublic(CheckBreakpoints(options.breakpoints, PromptTokensMax(chain)));
  if (status.ok() && chain.grouped()) status = Share(chain, options, share);
  if (!status.ok()) {
    GroupPlanOutcome miss;
    miss.stopped_by = PartResult::kLayout;
    miss.why = MissReason::kParallelism;
    if (status.code() != Code::kFailedPrecondition) {
      miss.status = ToAbsl(status);
    }
    sink(std::move(miss));
    return 0;
  }
  if (IsBelowMinimum(chain)) {
    GroupPlanOutcome miss;
    miss.stopped_by = PartResult::kMiss;
    miss.why = MissReason::kBelowMinimum;
    sink(std::move(miss));
    return 0;
  }
  const std::shared_ptr<const GroupLayout> groups = GroupsOf(chain);
  const GroupLayout& layout = *groups;
  const uint64_t tokens = uint64_t{chain.blocks()} * layout.layout.block_tokens;
  GroupPlanSpec spec;
  spec.chain.layout = layout.id;
  spec.chain.blocks = chain.rep()->keys;
  spec.chain.keep = std::shared_ptr<const void>(chain.shared());
  spec.layout = groups;
  spec.request = request;
  spec.caller_align_tokens = options.align_tokens;
  spec.max_tokens = options.max_tokens == 0 ? tokens : std::min<uint64_t>(tokens, options.max_tokens);
  spec.deadline = TimeOf(options);
  spec.lease = lease;
  spec.probe = probe;
  if (!options.breakpoints.empty()) {
    const std::vector<uint64_t> marks =
        cistern::CommitMarks(options.breakpoints, tokens, layout.layout.block_tokens);
    spec.boundaries = LookBack(marks, layout.layout.block_tokens, chain.blocks());
  }
  return PlanGroups(*core_, clock_, std::move(spec), std::move(sink));
}

Hit Client::Impl::MakeGroupHit(const Chain& chain, GroupPlanOutcome outcome, const CallOptions& options) {
  auto rep = std::make_shared<Hit::Rep>();
  rep->chain = chain;
  rep->decision = outcome.hit;
  rep->blocks = static_cast<uint32_t>(outcome.hit.tokens / chain.layout().block_tokens);
  rep->stopped_by = outcome.stopped_by;
  rep->why = outcome.why;
  rep->tail_plan = outcome.tail;
  if (!outcome.history.empty()) {
    rep->plan = outcome.history.front();
    rep->more_plans.assign(outcome.history.begin() + 1, outcome.history.end());
  }
  const bool named = !options.request_id.empty() && NameRequest(chain, options, rep->request).ok();
  rep->anchor = anchor_;  // From here on it releases its plans, and not under this lock: nothing throws.
  if (!named) return Hit(std::move(rep));
  rep->ranks = options.ranks;
  rep->asked = outcome.asked;
  Hit hit(std::move(rep));
  try {
    if (outcome.status.ok() && !outcome.lost) requests_.Put(*hit.rep()->request, hit);
  } catch (const std::bad_alloc&) {  // Whoever plans it again asks again.
  }
  return hit;
}

namespace {

// The parts of a page of this rank: of a block's history, or of the tail at `tokens`.
Status PartsOf(const Chain& chain, const std::vector<GroupShare>& share, uint64_t tokens, StoredParts& out) {
  const GroupLayout& layout = *chain.layout().groups;
  if (tokens == 0) {
    for (const uint32_t group : layout.sets.front().groups) {
      AppendParts(layout.layout, group, share[group], 0, layout.scale, out);
    }
    return {};
  }
  const uint32_t block_tokens = layout.layout.block_tokens;
  if (tokens % block_tokens != 0 || tokens / block_tokens > chain.blocks()) {
    return {Code::kInvalidArgument, "tokens: " + std::to_string(tokens) + " is no boundary of a chain of " +
                                        std::to_string(chain.blocks()) + " blocks of " +
                                        std::to_string(block_tokens)};
  }
  if (!layout.has_tails) return {Code::kInvalidArgument, "tokens: the layout has no tails"};
  out = TailParts(layout.layout, share, tokens, layout.scale);
  if (out.coords.empty()) return {Code::kInvalidArgument, "layer_first: the stage has nothing of the tail"};
  return {};
}

}  // namespace

Result<std::vector<PagePart>> Client::PageParts(const Chain& chain, const CallOptions& options,
                                                uint64_t tokens) const {
  if (!chain.grouped()) return Status(Code::kInvalidArgument, "chain: not of a layout of several groups");
  std::vector<GroupShare> share;
  StoredParts parts;
  if (Status status = Impl::Share(chain, options, share); !status.ok()) return status;
  if (Status status = PartsOf(chain, share, tokens, parts); !status.ok()) return status;
  std::vector<PagePart> out;
  for (size_t i = 0; i < parts.coords.size(); ++i) {
    const PartCoord& coord = parts.coords[i];
    out.push_back({coord.group, coord.slice, coord.span & ((1u << kChunkShift) - 1),
                   uint32_t{coord.span} >> kChunkShift, parts.bytes[i]});
  }
  return out;
}

Status Client::Impl::TailPartsOf(const Chain& chain, const CallOptions& options, uint64_t tokens,
                                 StoredParts& out) {
  std::vector<GroupShare> share;
  if (Status status = Share(chain, options, share); !status.ok()) return status;
  return PartsOf(chain, share, tokens, out);
}

OpId Client::Impl::SubmitLoadTail(const Hit& hit, const Page& page, const CallOptions& options,
                                  LoadDone sink) {
  Status status;
  std::vector<GroupShare> share;
  StoredParts parts;
  const Hit::Rep* rep = hit.rep();
  if (rep == nullptr || rep->anchor != anchor_ || rep->tail_plan == 0) {
    status = {Code::kInvalidArgument, "hit: empty, without a tail, or of another client"};
  } else if (status = Share(rep->chain, options, share); status.ok()) {
    status = PartsOf(rep->chain, share, rep->decision.tokens, parts);
  }
  if (!status.ok()) {
    sink({ToAbsl(status), 0, {}, 0});
    return 0;
  }
  RankParts mine{.parts = std::move(parts)};
  if (options.tp > 1 && options.host_ranks > 1) {
    const RankSplit split(*rep->chain.layout().groups, share, options, RankSplit::For::kLoad);
    mine = split.Tail(rep->chain.rep()->keys[rep->blocks - 1].hash, rep->decision.tokens);
    if (mine.parts.coords.empty()) {
      const PartResult other = PartResult::kExists;
      sink({{}, 1, {&other, 1}, 0});
      return 0;
    }
  }
  const Page cut = CutTo(page, mine);
  return core_->Load(rep->tail_plan, rep->blocks - 1, View({&cut, 1}), mine.parts.coords, DeadlineOf(options),
                     std::move(sink));
}

OpId Client::Impl::SubmitStoreTail(const Chain& chain, uint64_t tokens, const ConstPage& page,
                                   const TailOptions& tail, const CallOptions& options, StoreDone sink) {
  Status status;
  std::vector<GroupShare> share;
  StoredParts parts;
  if (!chain.grouped() || tokens == 0) {
    status = {Code::kInvalidArgument, "chain: not of a layout of several groups, or no boundary"};
  } else if (status = Share(chain, options, share); status.ok()) {
    status = PartsOf(chain, share, tokens, parts);
  }
  if (!status.ok()) {
    sink({ToAbsl(status), {}, 0});
    return 0;
  }
  const GroupLayout& layout = *chain.layout().groups;
  const uint32_t block_tokens = layout.layout.block_tokens;
  const auto block = static_cast<uint32_t>(tokens / block_tokens - 1);
  RankParts mine{.parts = std::move(parts)};
  if (options.tp > 1) {
    mine =
        RankSplit(layout, share, options, RankSplit::For::kStore).Tail(chain.rep()->keys[block].hash, tokens);
    if (mine.parts.coords.empty()) {  // Of all that ranks hold alike another one is the writer.
      const PartResult other = PartResult::kExists;
      sink({{}, {&other, 1}, 0});
      return 0;
    }
  }
  const ConstPage cut = CutTo(page, mine);
  CallSpec spec;
  spec.chain.layout = layout.id;
  spec.chain.blocks = absl::MakeConstSpan(chain.rep()->keys).subspan(0, block + 1);
  spec.chain.keep = std::shared_ptr<const void>(chain.shared());
  spec.coords = mine.parts.coords;
  spec.coord_bytes = mine.parts.bytes;
  spec.tail_parts = static_cast<uint32_t>(layout.TailAt(tokens).coords.size());
  spec.junction = tail.junction;
  spec.deadline = DeadlineOf(options);
  if (status = RetentionOf(options, spec.retention); !status.ok()) {
    sink({ToAbsl(status), {}, 0});
    return 0;
  }
  const uint64_t old = tail.replaces_tokens;
  if (old == 0 || old % block_tokens != 0 || old >= tokens)
    return core_->Store(spec, block, View({&cut, 1}), std::move(sink));
  // The older one goes only when the newer one is there.
  const auto old_block = static_cast<uint32_t>(old / block_tokens - 1);
  return core_->Store(
      spec, block, View({&cut, 1}),
      [this, chain, spec, old_block, sink = std::move(sink)](const StoreOutcome& outcome) {
        const bool there = outcome.status.ok() && !outcome.pages.empty() &&
                           (outcome.pages[0] == PartResult::kOk || outcome.pages[0] == PartResult::kExists);
        mutex_.AssertHeld();  // Callbacks of the core run under it.
        if (there) core_->Supersede(spec.chain, old_block, chain.rep()->keys[old_block + 1].hash.Prefix64());
        sink(outcome);
      });
}

CallId Client::LoadTail(const Hit& hit, const Page& page, const CallOptions& options,
                        std::function<void(LoadReport)> done) {
  const Impl::Entry entry(impl_.get());
  if (!entry) {
    if (done) done({.status = ForkedStatus(), .pages = {}});
    return 0;
  }
  Impl* impl = impl_.get();
  return impl->Call(std::move(done), [&](const auto& telling) {
    impl->mutex_.AssertHeld();
    return impl->SubmitLoadTail(hit, page, options, [telling](const LoadOutcome& o) {
      telling->Tell([&] { return std::tuple(ToReport(o)); });
    });
  });
}

CallId Client::StoreTail(const Chain& chain, uint64_t tokens, const ConstPage& page, const TailOptions& tail,
                         const CallOptions& options, std::function<void(StoreReport)> done) {
  const Impl::Entry entry(impl_.get());
  if (!entry) {
    if (done) done({.status = ForkedStatus(), .pages = {}});
    return 0;
  }
  Impl* impl = impl_.get();
  return impl->Call(std::move(done), [&](const auto& telling) {
    impl->mutex_.AssertHeld();
    return impl->SubmitStoreTail(chain, tokens, page, tail, options, [telling](const StoreOutcome& o) {
      telling->Tell([&] { return std::tuple(ToReport(o)); });
    });
  });
}

}  // namespace cistern
