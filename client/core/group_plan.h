#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "client/core/client_core.h"
#include "core/group_layout.h"
#include "core/hit_rule.h"
#include "core/miss_reason.h"

namespace cistern {

inline constexpr uint32_t kTailTriesMax =
    8;  // Boundaries whose tail went away between finding and leasing it.

// Finds the hit of a chain in a layout of several groups: every set of history groups at once, then, by the
// hit rule, the tail at the greatest boundary that has one. Everything found is of the whole reading group,
// so that all ranks of a request get the same answer; a rank loads its share of it.
struct GroupPlanSpec {
  ChainView chain;
  std::shared_ptr<const GroupLayout> layout;  // Owners: the chain and this call.
  uint32_t caller_align_tokens = 0;
  uint64_t max_tokens = 0;  // Prompt - 1.
  Nanos deadline = 0;       // From now; 0: the core's default.
  std::vector<uint64_t>
      boundaries{};    // Bit i: a hit may end behind block i (explicit caching). Empty: anywhere.
  bool lease = true;   // False: a look-up, which promises nothing.
  bool probe = false;  // A look-up by an operator: counts in no hit counter.
  // Names the request and its chain: all ranks that ask with the same name get the same length (F50), the
  // first one's, and each leases it for itself. With `lease`.
  std::optional<BlockHash> request{};
};
struct GroupPlanOutcome {
  absl::Status status;
  HitDecision hit;
  std::vector<PlanHandle> history;  // One for each of the layout's sets; 0: none, or no lease.
  PlanHandle tail = 0;              // Of one block: the last one of the hit.
  PartResult stopped_by = PartResult::kOk;
  MissReason why = MissReason::kNone;
  uint32_t asked = 0;  // With a request: ranks that have asked, this one among them.
  bool lost =
      false;  // What the ranks agreed on is not here any more: the length holds, and there is no plan.
};
// Called once, from the core's Poll; the plans are the callee's to release.
using GroupPlanDone = std::function<void(GroupPlanOutcome)>;

// The core and the clock outlive the call. Returns the id of its first operation; to cancel all of them ask
// inside a ClientCore::OneCall.
OpId PlanGroups(ClientCore& core, Clock& clock, GroupPlanSpec spec, GroupPlanDone done);

// Gives a hit's plans back. While not all `ranks` of its request have asked, their hit may rest on these
// leases alone: then they are left to end by themselves.
void ReleaseGroups(ClientCore& core, const GroupPlanOutcome& hit, const BlockHash& first_block,
                   const std::optional<BlockHash>& request, uint32_t ranks);

}  // namespace cistern
