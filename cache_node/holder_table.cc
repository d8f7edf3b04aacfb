#include "cache_node/holder_table.h"

#include <algorithm>

#include "core/check.h"

namespace cistern {

std::string_view WhenFullName(WhenFull when_full) {
  return when_full == WhenFull::kReject ? "reject" : "evict-own";
}

HolderTable::HolderTable() {
  tenants_.push_back({.name = "default"});
  holders_.push_back({});
}

TenantIndex HolderTable::TenantNamed(std::string_view name) {
  for (size_t i = 0; i < tenants_.size(); ++i) {
    if (tenants_[i].name == name) return static_cast<TenantIndex>(i);
  }
  if (tenants_.size() == kTenantsMax) return kNoTenant;
  tenants_.push_back({.name = std::string(name)});
  return static_cast<TenantIndex>(tenants_.size() - 1);
}

void HolderTable::SetLimits(TenantIndex index, const TenantLimits& limits) {
  tenants_[index].limits = limits;
  has_floors_ = std::any_of(tenants_.begin(), tenants_.end(),
                            [](const Tenant& one) { return one.limits.floor_bytes != 0; });
}

void HolderTable::Rename(TenantIndex index, std::string_view name) {
  CISTERN_CHECK(index != 0 && tenants_[index].used_bytes == 0);
  tenants_[index] = Tenant{.name = std::string(name)};
}

HolderId HolderTable::Number(TenantIndex tenant, const Retention& retention) {
  size_t unused = holders_.size();
  for (size_t i = 0; i < holders_.size(); ++i) {
    if (holders_[i].tenant == tenant && holders_[i].retention == retention) return static_cast<HolderId>(i);
    if (i > 0 && holders_[i].parts == 0) unused = i;
  }
  if (unused == kHoldersMax) return kNoHolder;
  if (unused == holders_.size()) holders_.emplace_back();
  holders_[unused] = {.tenant = tenant, .retention = retention};
  return static_cast<HolderId>(unused);
}

void HolderTable::Charge(HolderId id, uint32_t bytes) {
  Holder& holder = holders_[id];
  ++holder.parts;
  tenants_[holder.tenant].used_bytes += bytes;
  if (holder.retention.pin == PinKind::kHard) tenants_[holder.tenant].pinned_bytes += bytes;
}

void HolderTable::Uncharge(HolderId id, uint32_t bytes) {
  Holder& holder = holders_[id];
  CISTERN_CHECK(holder.parts > 0);
  --holder.parts;
  tenants_[holder.tenant].used_bytes -= bytes;
  if (holder.retention.pin == PinKind::kHard) tenants_[holder.tenant].pinned_bytes -= bytes;
}

}  // namespace cistern
