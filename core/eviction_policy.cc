#include "core/eviction_policy.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/eviction/cistern_policy.h"
#include "core/eviction/lru_policy.h"
#include "core/eviction/slru_policy.h"

namespace cistern {

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name,
                                                                   uint32_t capacity_entries) {
  if (name == "cistern") return std::make_unique<CisternPolicy>(capacity_entries);
  if (name == "slru") return std::make_unique<SlruPolicy>(capacity_entries);
  if (name == "lru") return std::make_unique<LruPolicy>(capacity_entries);
  return absl::InvalidArgumentError(absl::StrCat("no eviction policy \"", std::string(name),
                                                 "\"; nodes have ", absl::StrJoin(kNodePolicies, ", ")));
}

}  // namespace cistern
