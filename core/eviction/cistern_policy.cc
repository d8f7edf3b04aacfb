#include "core/eviction/cistern_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/check.h"

namespace cistern {
namespace {

constexpr uint64_t kGhostsMin = 65536;  // Fewer do not span a person's thinking time in a small pool.
constexpr uint64_t kGhostsPerEntry = 1;
constexpr uint32_t kTrackedBlocks = 8;  // Of a run under watch, evenly spaced.
constexpr uint64_t kRememberedMask =
    7;                        // Of what was neither watched nor an end, one in eight becomes a ghost.
constexpr int kTurnsMax = 5;  // As far as entries and ghosts count.
// Between updates: more and more, as there is less to learn. The cost is the tables', whatever came in
// between.
constexpr uint64_t kRequestsAnUpdateMin = 16, kRequestsAnUpdateMax = 256;
constexpr uint64_t kRequestsPerStep = 128;
constexpr uint64_t kRequestsWarm = 2048;  // Until then factors move fast.
constexpr float kHalfLife = 2200;         // Requests after which half of all counts is forgotten.
constexpr int kSweepsCold = 3;

// What a ghost says: 18 bits of watch, 3 of turn, whether it ended a path; never 0.
struct GhostFacts {
  WatchId watch = 0;
  uint32_t turn = 0;
  bool is_end = false;
  bool is_known = false;
  uint32_t Packed() const { return 1u << 31 | watch << 4 | turn << 1 | (is_end ? 1 : 0); }
  static GhostFacts Unpack(uint32_t value) {
    return {.watch = value >> 4 & 0x3ffff,
            .turn = value >> 1 & 7,
            .is_end = (value & 1) != 0,
            .is_known = value != 0};
  }
};

uint16_t StrideFor(uint32_t blocks) {
  return static_cast<uint16_t>(std::min((blocks + kTrackedBlocks - 1) / kTrackedBlocks, 65535u));
}
uint32_t TrackedOf(uint32_t blocks, uint16_t stride) { return (blocks + stride - 1) / stride; }

bool IsRemembered(uint64_t key) { return (key >> 40 & kRememberedMask) == 0; }

}  // namespace

CisternPolicy::CisternPolicy(uint32_t capacity_entries)
    : ghosts_(std::max(kGhostsMin, kGhostsPerEntry * capacity_entries)) {
  CISTERN_CHECK(capacity_entries <= kPolicyEntriesMax);
  entries_.reserve(capacity_entries);
  leaves_.reserve(capacity_entries);
  returns_.reserve(kLearnPending);
}

UseId CisternPolicy::Begin(const PolicyRequest& request) {
  now_ = request.tick;
  next_victim_ = kNoEntry;
  ++requests_;
  Learn();
  return OpenUse(request);
}

CisternPolicy::Use& CisternPolicy::UseOf(UseId id) {
  Use& use = uses_[id % kUsesMax];
  if (use.id == id && id != 0) return use;
  return uses_[OpenUse({.tick = now_, .here = {}, .missing = {}}) % kUsesMax];
}

UseId CisternPolicy::OpenUse(const PolicyRequest& request) {
  if (next_use_ == 0) next_use_ = kUsesMax;  // It has wrapped; 0 names none.
  Use& use = uses_[next_use_ % kUsesMax];
  if (use.id != 0) CloseUse(use);
  use = Use{.id = next_use_++, .tick = request.tick};
  FindTurn(request, use);
  return use.id;
}

void CisternPolicy::CloseUse(Use& use) {
  for (WatchId* watch : {&use.trunk_watch, &use.body_watch, &use.last_watch}) {
    if (*watch != 0) watches_.Release(*watch);
    *watch = 0;
  }
  use.id = 0;
}

// How far the request was known, and from there its class. The deepest end of a path that it covers, here or
// among the ghosts, says whether it goes on where another stopped.
void CisternPolicy::FindTurn(const PolicyRequest& request, Use& use) {
  const auto here = static_cast<uint32_t>(request.here.size());
  const auto missing = static_cast<uint32_t>(request.missing.size());
  const uint32_t length = here + missing;
  uint32_t known = here;
  int turn = 0;
  bool goes_on = false;
  if (here > 0) {
    use.deepest_here = request.here.back();
    const Entry& deepest = entries_[use.deepest_here];
    goes_on = deepest.is_end != 0;
    turn = static_cast<int>(deepest.turn) + 1;
  }
  constexpr uint32_t kAhead = 16;
  for (uint32_t i = 0; i < missing; ++i) {
    if (i + kAhead < missing) ghosts_.Prefetch(request.missing[i + kAhead]);
    const GhostFacts ghost = GhostFacts::Unpack(ghosts_.Take(request.missing[i]));
    if (!ghost.is_known) continue;
    if (ghost.watch != 0) Came(ghost.watch);
    known = here + i + 1;
    use.known_key = request.missing[i];
    goes_on = ghost.is_end;
    turn = static_cast<int>(ghost.turn) + 1;
  }
  use.branches = known > 0 && !goes_on;
  use.turn = static_cast<uint8_t>(goes_on ? std::min(turn, kTurnsMax) : 0);
  use.body_class = static_cast<uint16_t>(ReuseModel::BodyClass(use.turn, length, length - known));
  if (missing > 0) use.last_key = request.missing[missing - 1];
  if (missing > 1) use.before_last_key = request.missing[missing - 2];
  if (missing == 0 && here > 0) use.last_here = request.here[here - 1];
  if (missing < 2 && length > 1) use.before_last_here = request.here[here + missing - 2];
  const uint32_t trunk = use.branches ? known : TrunkLength(request.here);
  const uint32_t body = length - std::min(trunk + 1, length);
  use.trunk_stride = StrideFor(std::max(trunk, 1u));
  use.body_stride = StrideFor(std::max(body, 1u));
  // The fuller the list, the fewer new runs are watched: one in 2^n when 2^-n of it is free.
  const uint32_t room = WatchList::kWatchesMax + 1 - watches_.live();
  const int sparse = std::countl_zero(room) - std::countl_zero(WatchList::kWatchesMax);
  if (room < 4 || (random_.Next() & ((uint64_t{1} << std::max(sparse, 0)) - 1)) != 0) return;
  if (trunk > 0)
    use.trunk_watch = watches_.Open(ReuseModel::kTrunk, use.tick, TrackedOf(trunk, use.trunk_stride));
  if (body > 0) use.body_watch = watches_.Open(use.body_class, use.tick, TrackedOf(body, use.body_stride));
  if (length > 0) use.last_watch = watches_.Open(ReuseModel::LastClass(use.turn), use.tick, 1);
}

// Trunk is a prefix of every chain.
uint32_t CisternPolicy::TrunkLength(absl::Span<const EntryId> here) const {
  const auto* end = std::partition_point(here.begin(), here.end(),
                                         [this](EntryId id) { return entries_[id].is_trunk != 0; });
  return static_cast<uint32_t>(end - here.begin());
}

void CisternPolicy::SetClass(Use& use, Entry& entry, bool is_last, bool is_end) {
  entry.tick = use.tick;
  entry.turn = use.turn;
  entry.watch = 0;
  WatchId watch = 0;
  if (entry.is_trunk != 0) {
    entry.cls = ReuseModel::kTrunk;
    entry.is_end = 0;
    if (use.trunk_seen++ % use.trunk_stride == 0) watch = use.trunk_watch;
  } else if (is_last) {
    entry.cls = static_cast<uint32_t>(ReuseModel::LastClass(use.turn)) & kGone;
    entry.is_end = 1;
    watch = use.last_watch;
  } else {
    entry.cls = use.body_class;
    entry.is_end = is_end ? 1 : 0;
    if (use.body_seen++ % use.body_stride == 0) watch = use.body_watch;
  }
  if (watch == 0 || !watches_.TryJoin(watch, now_)) return;
  entry.watch = watch;
}

void CisternPolicy::Insert(UseId use_id, EntryId id, const EntryFacts& facts) {
  if (id >= entries_.size()) entries_.resize(size_t{id} + 1);
  Use& use = UseOf(use_id);
  Entry& entry = entries_[id];
  CISTERN_CHECK(entry.cls == kGone);
  if (use.deepest_here == id) use.deepest_here = kNoEntry;  // That one went, and this has its slot.
  use.reached_known |= facts.key == use.known_key && use.known_key != 0;
  entry.is_trunk = use.branches && use.reached_known ? 1 : 0;
  entry.parent = kNoEntry;
  const bool is_last = facts.key == use.last_key && use.last_key != 0;
  SetClass(use, entry, is_last, facts.key == use.before_last_key && use.before_last_key != 0);
  if (IsLeaf(entry)) AddLeaf(id);  // Else children of who was here before still count.
  Follow(use, id, facts.depth);
  if (IsHere(use.deepest_here)) SetParent(id, use.deepest_here);
}

void CisternPolicy::Touch(UseId use_id, EntryId id, uint32_t depth) {
  Use& use = UseOf(use_id);
  Entry& entry = entries_[id];
  CISTERN_CHECK(entry.cls != kGone);
  if (entry.watch != 0) Came(entry.watch);
  if (use.branches) entry.is_trunk = 1;
  SetClass(use, entry, id == use.last_here, id == use.before_last_here);
  Follow(use, id, depth);
}

// The deeper entry that this request used before it hangs below this one; parts of a block hang together.
void CisternPolicy::Follow(Use& use, EntryId id, uint32_t depth) {
  if (use.latest != id && use.latest_depth >= depth && IsHere(use.latest)) SetParent(use.latest, id);
  use.latest = id;
  use.latest_depth = depth;
  if (use.tail == kNoEntry) use.tail = id;
}

void CisternPolicy::SetParent(EntryId child, EntryId parent) {
  Entry& entry = entries_[child];
  if (entry.parent == parent || entries_[parent].parent == child) return;
  if (entry.parent != kNoEntry) DropChild(entry.parent);
  entry.parent = parent;
  Entry& above = entries_[parent];
  if (IsLeaf(above)) {
    RemoveLeaf(parent);
    above.children = 0;
  }
  ++above.children;
}

void CisternPolicy::DropChild(EntryId parent) {
  Entry& above = entries_[parent];
  CISTERN_CHECK(!IsLeaf(above) && above.children > 0);
  if (--above.children > 0) return;
  above.children = kLeafBit;
  if (above.cls != kGone) AddLeaf(parent);
}

void CisternPolicy::Unlink(EntryId id) {
  Entry& entry = entries_[id];
  if (IsLeaf(entry)) {
    RemoveLeaf(id);
    entry.children = kLeafBit;
  }
  entry.cls = kGone;
  entry.watch = 0;
  const EntryId parent = entry.parent;
  entry.parent = kNoEntry;
  if (parent != kNoEntry) DropChild(parent);
}

void CisternPolicy::Erase(EntryId id) {
  CISTERN_CHECK(IsHere(id));
  if (entries_[id].watch != 0) watches_.Lose(entries_[id].watch, now_);
  Unlink(id);
}

void CisternPolicy::Evicted(EntryId id, uint64_t key) {
  CISTERN_CHECK(IsHere(id));
  const Entry gone = entries_[id];
  if (gone.watch != 0 || gone.is_end != 0 || IsRemembered(key)) {
    const GhostFacts ghost{.watch = gone.watch, .turn = gone.turn, .is_end = gone.is_end != 0};
    const GhostFacts forgotten = GhostFacts::Unpack(ghosts_.Push(key, ghost.Packed()));
    if (forgotten.watch != 0) watches_.Lose(forgotten.watch, now_);
  }
  Unlink(id);
  next_victim_ = kNoEntry;
  if (gone.parent == kNoEntry) return;
  const Entry& above = entries_[gone.parent];
  const bool together = above.cls != kGone && IsLeaf(above) && above.tick == gone.tick &&
                        above.turn == gone.turn && (above.cls == gone.cls || ReuseModel::IsLast(gone.cls));
  if (together && !ReuseModel::IsLast(gone.cls)) next_victim_ = gone.parent;
}

void CisternPolicy::AddLeaf(EntryId id) {
  entries_[id].children = kLeafBit | static_cast<uint32_t>(leaves_.size());
  leaves_.push_back(id);
}

void CisternPolicy::RemoveLeaf(EntryId id) {
  const uint32_t place = entries_[id].children & ~kLeafBit;
  const EntryId moved = leaves_.back();
  leaves_[place] = moved;
  entries_[moved].children = kLeafBit | place;
  leaves_.pop_back();
}

void CisternPolicy::Came(WatchId watch) {
  returns_.push_back({watch, now_});
  if (returns_.size() == kLearnPending) Learn();
}

// Counts the returns since, and now and then computes what all is worth.
void CisternPolicy::Learn() {
  const bool is_warm = requests_ > kRequestsWarm;
  const uint64_t passed = requests_ - updated_at_;
  const bool is_due =
      passed >= std::clamp(requests_ / kRequestsPerStep, kRequestsAnUpdateMin, kRequestsAnUpdateMax);
  if (!is_due && returns_.size() < kLearnPending) return;
  for (const Return& back : returns_) watches_.CameBack(back.watch, back.tick);
  returns_.clear();
  if (!is_due) return;
  updated_at_ = requests_;
  watches_.Advance(now_);
  model_.Update(now_, std::exp2(-static_cast<float>(passed) / kHalfLife), is_warm ? 1 : kSweepsCold);
}

std::optional<EntryId> CisternPolicy::Victim(absl::FunctionRef<bool(EntryId)> may_evict) {
  if (IsHere(next_victim_) && may_evict(next_victim_)) return next_victim_;
  if (const std::optional<EntryId> id = SampleLeaves(may_evict); id.has_value()) return id;
  return ScanForAny(may_evict);
}

std::optional<EntryId> CisternPolicy::SampleLeaves(absl::FunctionRef<bool(EntryId)> may_evict) {
  std::optional<EntryId> best;
  float best_worth = 0;
  PolicyTick best_age = 0;
  const auto consider = [&](EntryId id) {
    const Entry& entry = entries_[id];
    const PolicyTick age = now_ - entry.tick;
    const float worth = model_.Worth(static_cast<int>(entry.cls), age);
    const bool less = !best.has_value() || worth < best_worth || (worth == best_worth && age > best_age);
    if (!less || !may_evict(id)) return;
    best = id;
    best_worth = worth;
    best_age = age;
  };
  if (leaves_.size() <= kSamples) {
    for (const EntryId id : leaves_) consider(id);
  } else {
    std::array<EntryId, kSamples> samples;
    for (EntryId& id : samples) {
      id = leaves_[random_.Below(leaves_.size())];
      __builtin_prefetch(&entries_[id]);
    }
    for (const EntryId id : samples) consider(id);
    const EntryId own = uses_[(next_use_ - 1) % kUsesMax].tail;
    if (IsHere(own) && IsLeaf(entries_[own])) consider(own);
  }
  return best;
}

// What sampling missed: most leaves are held by readers, or all are and a parent is free. Where children
// were counted in a slot that has another entry now, there may be no leaf at all: then the table is searched,
// a piece at each call, since most of it may be gone.
std::optional<EntryId> CisternPolicy::ScanForAny(absl::FunctionRef<bool(EntryId)> may_evict) {
  const size_t leaves = std::min<size_t>(leaves_.size(), kVictimScanMax / 2);
  const size_t first = leaves_.empty() ? 0 : random_.Below(leaves_.size());
  for (size_t i = 0; i < leaves; ++i) {
    const EntryId id = leaves_[(first + i) % leaves_.size()];
    if (may_evict(id)) return id;
  }
  int asked = 0;
  for (size_t i = 0; i < leaves; ++i) {
    EntryId id = entries_[leaves_[(first + i) % leaves_.size()]].parent;
    for (; IsHere(id) && asked < kVictimScanMax / 4; id = entries_[id].parent, ++asked) {
      if (may_evict(id)) return id;
    }
  }
  asked = 0;
  const size_t steps = std::min<size_t>(entries_.size(), kTableScanMax);
  for (size_t i = 0; i < steps && asked < kVictimScanMax / 4; ++i, ++scanned_entries_) {
    scan_hand_ = scan_hand_ + 1 < entries_.size() ? scan_hand_ + 1 : 0;
    if (entries_[scan_hand_].cls == kGone) continue;
    ++asked;
    if (may_evict(scan_hand_)) return scan_hand_;
  }
  return std::nullopt;
}

uint64_t CisternPolicy::memory_bytes() const {
  return sizeof(*this) + entries_.size() * sizeof(Entry) + leaves_.size() * sizeof(EntryId) +
         model_.memory_bytes() + watches_.memory_bytes() + ghosts_.memory_bytes();
}

}  // namespace cistern
