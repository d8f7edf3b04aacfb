#include <algorithm>
#include <cstring>
#include <utility>

#include "client/core/client_core_impl.h"

// Single flight (F53): a Fetch of what another Fetch of this client is bringing right now waits for that one
// and copies its verified pages. It has its own deadline and can be cancelled alone; when the first one is
// cancelled or runs out of time, the next in line starts over for the rest.
namespace cistern {
namespace {

// The last block's chained hash names everything before it, so equal lengths and equal last keys are equal
// chains.
bool SameBytes(const Operation& a, const Operation& b) {
  return a.limit == b.limit && a.chain.part_bytes == b.chain.part_bytes && a.chain.layout == b.chain.layout &&
         a.chain.blocks[a.limit - 1] == b.chain.blocks[b.limit - 1] && a.coords == b.coords &&
         a.coord_bytes == b.coord_bytes;
}

void CopyPage(absl::Span<const Segment> from, absl::Span<const Segment> to) {
  size_t f = 0, f_at = 0, t = 0, t_at = 0;
  while (f < from.size() && t < to.size()) {
    const size_t bytes = std::min(from[f].bytes - f_at, to[t].bytes - t_at);
    std::memmove(to[t].data + t_at, from[f].data + f_at, bytes);  // Two calls may name the same memory.
    f_at += bytes;
    t_at += bytes;
    if (f_at == from[f].bytes) ++f, f_at = 0;
    if (t_at == to[t].bytes) ++t, t_at = 0;
  }
}

}  // namespace

bool ClientCore::Impl::JoinFlight(Operation& op) {
  if (op.limit == 0) return false;
  for (Operation* other : active_) {
    if (other == &op || other->kind != OpKind::kFetch || other->completed || other->ending ||
        other->leader != nullptr || !SameBytes(*other, op)) {
      continue;
    }
    other->followers.push_back(&op);
    op.leader = other;
    ++counters_.single_flight_shared;
    return true;
  }
  return false;
}

// A follower whose time is up: it leaves, the others go on.
void ClientCore::Impl::LeaveFlight(Operation& op) {
  std::vector<Operation*>& list = op.leader->followers;
  list.erase(std::find(list.begin(), list.end(), &op));
  op.leader = nullptr;
  op.started = op.found = true;
  op.hit = 0;
  op.stopped_by = op.end_reason;
  FinishPages(op);
}

// The leader's results are final and its memory is still the client's.
void ClientCore::Impl::LandFlight(Operation& leader) {
  if (leader.ending && !leader.followers.empty()) {
    Operation* next = leader.followers.front();
    next->leader = nullptr;
    for (size_t i = 1; i < leader.followers.size(); ++i) {
      leader.followers[i]->leader = next;
      next->followers.push_back(leader.followers[i]);
    }
    leader.followers.clear();
    MarkDirty(*next);  // Starts.
    return;
  }
  for (Operation* op : leader.followers) {
    op->leader = nullptr;
    op->started = op->found = true;
    op->hit = leader.hit;
    op->results.assign(leader.results.begin(), leader.results.end());
    for (uint32_t page = 0; page < op->page_count(); ++page) {
      if (op->results[page] == PartResult::kOk) {
        CopyPage(leader.PageSegments(page), op->PageSegments(page));
        op->bytes += op->BlockBytes();
      }
      ++counters_.load_pages[static_cast<size_t>(op->results[page])];
    }
    counters_.load_bytes += op->bytes;
    counters_.lookup_blocks += op->limit;
    counters_.hit_blocks += op->hit;
    counters_.miss_blocks += op->limit - op->hit;
    Complete(*op);
  }
  leader.followers.clear();
}

}  // namespace cistern
