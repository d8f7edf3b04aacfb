#include "core/eviction/hazard_policy.h"

#include <algorithm>

#include "core/check.h"

namespace cistern {
namespace {

constexpr uint32_t kGhostsMin = 65536;  // Fewer do not span a person's thinking time in a small pool.
constexpr uint32_t kGhostsPerEntry = 2;

uint32_t GhostsFor(uint32_t entries) {
  return std::max(kGhostsMin,
                  std::min<uint32_t>(entries, UINT32_MAX / kGhostsPerEntry / 2) * kGhostsPerEntry);
}

}  // namespace

HazardPolicy::HazardPolicy(uint32_t capacity_entries) : ghosts_(GhostsFor(capacity_entries)) {
  entries_.reserve(capacity_entries);
  leaves_.reserve(capacity_entries);
}

void HazardPolicy::Insert(EntryId id, uint64_t ghost_key, uint32_t depth) {
  if (id >= entries_.size()) entries_.resize(size_t{id} + 1);
  CISTERN_CHECK(entries_[id].run == kNone);
  BeginUse(id, ghost_key, depth, /*is_touch=*/false);
  uint8_t cls = 0;
  if (const std::optional<uint32_t> run = ghosts_.Take(ghost_key); run.has_value()) {
    cls = static_cast<uint8_t>(std::min(runs_[*run].cls + 1, ReuseModel::kClasses - 1));
    LeaveRun(*run, /*came_back=*/true);
  }
  entries_[id] = Entry{.key = ghost_key, .run = kNone, .depth = depth, .parent = {}, .stamp = ++next_stamp_};
  EndUse(id, cls);
  AddLeaf(id);
  if (IsHere(last_)) LinkToParent(last_, id);
  last_ = RefTo(id);
}

void HazardPolicy::Touch(EntryId id) {
  Entry& entry = entries_[id];
  CISTERN_CHECK(entry.run != kNone);
  BeginUse(id, entry.key, entry.depth, /*is_touch=*/true);
  const auto cls = static_cast<uint8_t>(std::min(runs_[entry.run].cls + 1, ReuseModel::kClasses - 1));
  LeaveRun(entry.run, /*came_back=*/true);
  EndUse(id, cls);
  if (IsHere(last_)) LinkToParent(last_, id);
  last_ = RefTo(id);
  if (!touched_any_) deepest_touched_ = last_;
  touched_any_ = true;
}

// Another request begins where depths stop falling; where touches follow inserts or the reverse with a gap (a
// node holds only its own runs of a chain, so a gap alone says nothing); and where inserts have come down to
// what was touched before them. Parts of one block share depth and key, and belong together.
void HazardPolicy::BeginUse(EntryId id, uint64_t key, uint32_t depth, bool is_touch) {
  const bool same_block = depth == last_depth_ && key == last_key_ && last_.id != id;
  const bool below = depth < last_depth_ && (is_touch == last_is_touch_ || depth + 1 == last_depth_);
  const bool complete = ContinuesTouched() && entries_[deepest_touched_.id].depth + 1 == last_depth_ &&
                        depth + 1 != last_depth_;
  if (last_.id == kNone || complete || !(same_block || below)) NextRequest();
  last_depth_ = depth;
  last_key_ = key;
  last_is_touch_ = is_touch;
}

// Whether the request at hand has only inserts so far, all deeper than what was touched last: a node touches
// what it has, and the blocks behind are inserted once they are written.
bool HazardPolicy::ContinuesTouched() const {
  return !touched_any_ && IsHere(last_) && IsHere(deepest_touched_) &&
         entries_[deepest_touched_.id].depth < last_depth_;
}

void HazardPolicy::EndUse(EntryId id, uint8_t cls) {
  if (open_run_ != kNone && runs_[open_run_].cls != cls) CloseRun();
  if (open_run_ == kNone) open_run_ = OpenRun(cls);
  ++runs_[open_run_].left;
  ++runs_[open_run_].size;
  entries_[id].run = open_run_;
}

void HazardPolicy::NextRequest() {
  if (ContinuesTouched()) LinkToParent(last_, deepest_touched_.id);
  CloseRun();
  last_ = {};
  touched_any_ = false;
  next_victim_ = {};
  ++tick_;
  model_.Tick();
  for (int b = ReuseModel::kBins - 2; b >= 0; --b) {
    const uint64_t end = ReuseModel::BinStart(b + 1);
    while (bins_[b].oldest != kNone && tick_ - runs_[bins_[b].oldest].tick >= end) {
      const uint32_t run = bins_[b].oldest;
      const double weight = runs_[run].left * runs_[run].Share();
      PopBin(run);
      PushBin(run, static_cast<uint8_t>(b + 1));
      model_.Unwatch(runs_[run].cls, b, weight);
      model_.Watch(runs_[run].cls, b + 1, weight);
    }
  }
}

void HazardPolicy::LinkToParent(Ref child, EntryId parent) {
  Entry& entry = entries_[child.id];
  const Ref now = RefTo(parent);
  if (entry.parent == now || child.id == parent) return;
  if (IsHere(entry.parent) && --entries_[entry.parent.id].children == 0) AddLeaf(entry.parent.id);
  entry.parent = now;
  if (entries_[parent].children++ == 0) RemoveLeaf(parent);
}

void HazardPolicy::Unlink(EntryId id) {
  Entry& entry = entries_[id];
  if (entry.children == 0) RemoveLeaf(id);
  entry.run = kNone;
  if (IsHere(entry.parent) && --entries_[entry.parent.id].children == 0) AddLeaf(entry.parent.id);
}

void HazardPolicy::Erase(EntryId id) {
  CISTERN_CHECK(id < entries_.size() && entries_[id].run != kNone);
  LeaveRun(entries_[id].run, /*came_back=*/false);
  Unlink(id);
}

void HazardPolicy::Evicted(EntryId id) {
  CISTERN_CHECK(id < entries_.size() && entries_[id].run != kNone);
  const uint32_t run = entries_[id].run;
  const Ref parent = entries_[id].parent;
  Unlink(id);
  next_victim_ =
      IsHere(parent) && entries_[parent.id].run == run && entries_[parent.id].children == 0 ? parent : Ref{};
  if (const std::optional<uint32_t> forgotten = ghosts_.Push(entries_[id].key, run); forgotten.has_value()) {
    LeaveRun(*forgotten, /*came_back=*/false);
  }
}

uint32_t HazardPolicy::OpenRun(uint8_t cls) {
  uint32_t run = static_cast<uint32_t>(runs_.size());
  if (free_runs_.empty()) {
    runs_.emplace_back();
  } else {
    run = free_runs_.back();
    free_runs_.pop_back();
  }
  runs_[run] = Run{.tick = tick_, .cls = cls, .open = true};
  return run;
}

void HazardPolicy::CloseRun() {
  if (open_run_ == kNone) return;
  Run& run = runs_[open_run_];
  run.open = false;
  if (run.left == 0) {
    free_runs_.push_back(open_run_);
  } else {
    PushBin(open_run_, 0);
    model_.Watch(run.cls, 0, run.left * run.Share());
  }
  open_run_ = kNone;
}

void HazardPolicy::LeaveRun(uint32_t at, bool came_back) {
  Run& run = runs_[at];
  --run.left;
  if (run.open) return;
  if (came_back) {
    model_.CameBack(run.cls, run.bin, run.Share());
  } else {
    model_.Unwatch(run.cls, run.bin, run.Share());
  }
  if (run.left > 0) return;
  PopBin(at);
  free_runs_.push_back(at);
}

void HazardPolicy::PushBin(uint32_t run, uint8_t bin) {
  Bin& list = bins_[bin];
  runs_[run].bin = bin;
  runs_[run].older = list.newest;
  runs_[run].newer = kNone;
  (list.newest == kNone ? list.oldest : runs_[list.newest].newer) = run;
  list.newest = run;
}

void HazardPolicy::PopBin(uint32_t run) {
  const Run& gone = runs_[run];
  Bin& list = bins_[gone.bin];
  (gone.older == kNone ? list.oldest : runs_[gone.older].newer) = gone.newer;
  (gone.newer == kNone ? list.newest : runs_[gone.newer].older) = gone.older;
}

void HazardPolicy::AddLeaf(EntryId id) {
  entries_[id].leaf_place = static_cast<uint32_t>(leaves_.size());
  leaves_.push_back(id);
}

void HazardPolicy::RemoveLeaf(EntryId id) {
  const uint32_t place = entries_[id].leaf_place;
  leaves_[place] = leaves_.back();
  entries_[leaves_[place]].leaf_place = place;
  leaves_.pop_back();
}

double HazardPolicy::WorthOf(EntryId id) const {
  const Run& run = runs_[entries_[id].run];
  return model_.Worth(run.cls, run.bin);
}

std::optional<EntryId> HazardPolicy::Victim(absl::FunctionRef<bool(EntryId)> may_evict) {
  if (IsHere(next_victim_) && may_evict(next_victim_.id)) return next_victim_.id;
  if (const std::optional<EntryId> id = SampleLeaves(may_evict); id.has_value()) return id;
  return ScanForAny(may_evict);
}

std::optional<EntryId> HazardPolicy::SampleLeaves(absl::FunctionRef<bool(EntryId)> may_evict) {
  std::optional<EntryId> best;
  double best_worth = 0;
  uint64_t best_tick = 0;
  const auto consider = [&](EntryId id) {
    const double worth = WorthOf(id);
    const uint64_t tick = runs_[entries_[id].run].tick;
    const bool less = !best.has_value() || worth < best_worth || (worth == best_worth && tick < best_tick);
    if (!less || !may_evict(id)) return;
    best = id;
    best_worth = worth;
    best_tick = tick;
  };
  if (leaves_.size() <= kSamples) {
    for (const EntryId id : leaves_) consider(id);
  } else {
    for (int i = 0; i < kSamples; ++i) consider(leaves_[random_.Below(leaves_.size())]);
  }
  return best;
}

// What sampling missed: most leaves are held by readers, or all are and a parent is free.
std::optional<EntryId> HazardPolicy::ScanForAny(absl::FunctionRef<bool(EntryId)> may_evict) {
  const size_t leaves = std::min<size_t>(leaves_.size(), kVictimScanMax / 2);
  size_t at = leaves_.empty() ? 0 : random_.Below(leaves_.size());
  for (size_t i = 0; i < leaves; ++i, at = at + 1 < leaves_.size() ? at + 1 : 0) {
    if (may_evict(leaves_[at])) return leaves_[at];
  }
  int asked = 0;
  for (size_t i = 0; i < entries_.size() && asked < kVictimScanMax / 2; ++i) {
    scan_hand_ = scan_hand_ + 1 < entries_.size() ? scan_hand_ + 1 : 0;
    if (entries_[scan_hand_].run == kNone) continue;
    ++asked;
    if (may_evict(scan_hand_)) return scan_hand_;
  }
  return std::nullopt;
}

}  // namespace cistern
