#include <utility>

#include "cistern/client.h"
#include "client/client_impl.h"
#include "client/convert.h"
#include "client/rank_split.h"

// Loads and stores of one rank. What several ranks hold alike one of them writes, and on each host one reads.
namespace cistern {
namespace {

// One call of the user in several of the core's. Owners: the callbacks of those.
template <typename Outcome, typename Done>
struct SharedCall {
  Done sink{};
  absl::Status status{};
  std::vector<PartResult> pages{};
  uint64_t bytes = 0;
  size_t open = 1;  // The submission itself.

  void Land(uint32_t first, uint32_t count, const Outcome& part) {
    if (!part.status.ok()) status = part.status;
    bytes += part.bytes;
    for (uint32_t i = 0; i < count; ++i) {
      pages[first + i] = i < part.pages.size() ? part.pages[i] : PartResult::kInvalid;
    }
    End();
  }
  void End() {
    if (--open != 0) return;
    Outcome whole;
    whole.status = status;
    if (status.ok()) whole.pages = pages;
    if constexpr (requires { whole.hit_blocks; }) whole.hit_blocks = static_cast<uint32_t>(pages.size());
    whole.bytes = bytes;
    sink(whole);
  }
};

}  // namespace

Status Client::Impl::SplitOf(const Chain& chain, const CallOptions& options, std::vector<GroupShare>& shares,
                             bool& shared, bool load) {
  shared = false;
  if (!chain.grouped() || options.tp <= 1) return {};
  if (options.host_ranks == 0) return {Code::kInvalidArgument, "host_ranks: 0"};
  if (Status status = Share(chain, options, shares); !status.ok()) return status;
  const auto what = load ? RankSplit::For::kLoad : RankSplit::For::kStore;
  shared = RankSplit(*chain.layout().groups, shares, options, what).IsShared();
  return {};
}

OpId Client::Impl::SubmitLoad(const Hit& hit, uint32_t first, std::span<const Page> pages,
                              const CallOptions& options, LoadDone sink) {
  Status status;
  std::vector<GroupShare> shares;
  bool shared = false;
  if (hit.rep() == nullptr || (hit.rep()->anchor != anchor_)) {
    status = {Code::kInvalidArgument, "hit: empty, or of another client"};
  } else if (pages.empty()) {
    sink({});
    return 0;
  } else if (hit.rep()->plan == 0 && first + pages.size() <= hit.rep()->blocks) {
    // What the ranks agreed on was gone before this one could lease it (F50).
    const std::vector<PartResult> lost(pages.size(), PartResult::kLeaseExpired);
    sink({{}, static_cast<uint32_t>(pages.size()), lost, 0});
    return 0;
  } else if (status = SplitOf(hit.rep()->chain, options, shares, shared, /*load=*/true); status.ok()) {
    status = Coords(hit.rep()->chain, options);
  }
  if (!status.ok()) {
    sink({ToAbsl(status), 0, {}, 0});
    return 0;
  }
  if (shared && first + pages.size() <= hit.rep()->blocks)
    return LoadShared(hit, first, pages, options, shares, std::move(sink));
  return core_->Load(hit.rep()->plan, first, View(pages), coords_, DeadlineOf(options), std::move(sink),
                     SharedParts(hit.rep()->chain, options));
}

OpId Client::Impl::SubmitStore(const Chain& chain, uint32_t first, std::span<const ConstPage> pages,
                               const CallOptions& options, StoreDone sink) {
  CallSpec spec;
  std::vector<GroupShare> shares;
  bool shared = false;
  Status status = Spec(chain, options, spec);
  if (status.ok()) status = SplitOf(chain, options, shares, shared, /*load=*/false);
  if (!status.ok()) {
    sink({ToAbsl(status), {}, 0});
    return 0;
  }
  if (shared && first + pages.size() <= chain.blocks())
    return StoreShared(chain, first, pages, options, shares, spec, std::move(sink));
  return core_->Store(spec, first, View(pages), std::move(sink));
}

OpId Client::Impl::StoreShared(const Chain& chain, uint32_t first, std::span<const ConstPage> pages,
                               const CallOptions& options, const std::vector<GroupShare>& shares,
                               const CallSpec& spec, StoreDone sink) {
  using Call = SharedCall<StoreOutcome, StoreDone>;
  auto call = std::make_shared<Call>(Call{.sink = std::move(sink)});
  call->pages.assign(pages.size(), PartResult::kExists);  // Where nothing is this rank's, another has it.
  const RankSplit split(*chain.layout().groups, shares, options, RankSplit::For::kStore);
  OpId id = 0;
  std::vector<ConstPage> cut;
  for (const RankPiece& piece :
       split.History(spec.chain.blocks, first, static_cast<uint32_t>(pages.size()))) {
    if (piece.mine.parts.coords.empty()) continue;
    cut.clear();
    const uint32_t at = piece.first - first;
    for (uint32_t i = 0; i < piece.count; ++i) cut.push_back(CutTo(pages[at + i], piece.mine));
    CallSpec mine = spec;
    mine.coords = piece.mine.parts.coords;
    mine.coord_bytes = piece.mine.parts.bytes;
    ++call->open;
    const OpId op = core_->Store(
        mine, piece.first, View(std::span<const ConstPage>(cut)),
        [call, at, count = piece.count](const StoreOutcome& part) { call->Land(at, count, part); });
    if (id == 0) id = op;
  }
  call->End();
  return id;
}

OpId Client::Impl::LoadShared(const Hit& hit, uint32_t first, std::span<const Page> pages,
                              const CallOptions& options, const std::vector<GroupShare>& shares,
                              LoadDone sink) {
  using Call = SharedCall<LoadOutcome, LoadDone>;
  auto call = std::make_shared<Call>(Call{.sink = std::move(sink)});
  call->pages.assign(pages.size(), PartResult::kExists);
  const Chain& chain = hit.rep()->chain;
  const RankSplit split(*chain.layout().groups, shares, options, RankSplit::For::kLoad);
  OpId id = 0;
  std::vector<Page> cut;
  for (const RankPiece& piece :
       split.History(chain.rep()->keys, first, static_cast<uint32_t>(pages.size()))) {
    if (piece.mine.parts.coords.empty()) continue;
    cut.clear();
    const uint32_t at = piece.first - first;
    for (uint32_t i = 0; i < piece.count; ++i) cut.push_back(CutTo(pages[at + i], piece.mine));
    ++call->open;
    const OpId op = core_->Load(
        hit.rep()->plan, piece.first, View(std::span<const Page>(cut)), piece.mine.parts.coords,
        DeadlineOf(options),
        [call, at, count = piece.count](const LoadOutcome& part) { call->Land(at, count, part); });
    if (id == 0) id = op;
  }
  call->End();
  return id;
}

Result<uint32_t> Client::PullerOf(const Chain& chain, uint32_t block, uint32_t group,
                                  const CallOptions& options) {
  std::vector<GroupShare> shares;
  bool shared = false;
  if (Status status = Impl::SplitOf(chain, options, shares, shared, /*load=*/true); !status.ok())
    return status;
  if (!shared) return options.tp_rank;
  const layout::Layout& layout = chain.layout().groups->layout;
  if (group >= layout.groups.size() || block >= chain.blocks()) {
    return Status(Code::kInvalidArgument, "group " + std::to_string(group) + " of block " +
                                              std::to_string(block) + ": the chain has no such one");
  }
  const bool tail = IsTail(layout.groups[group]);
  const uint32_t first = tail ? block : block / kElectionBlocks * kElectionBlocks;
  const RankSplit split(*chain.layout().groups, shares, options, RankSplit::For::kLoad);
  return split.RankOf(group, chain.rep()->keys[first].hash);
}

}  // namespace cistern
