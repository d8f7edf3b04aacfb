#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/retention.h"

namespace cistern {

using TenantIndex = uint16_t;
inline constexpr TenantIndex kNoTenant = UINT16_MAX;
inline constexpr size_t kTenantsMax = 256;  // One row a tenant, or a tenant's namespace.

using HolderId = uint16_t;
inline constexpr HolderId kNoHolder = UINT16_MAX;
inline constexpr size_t kHoldersMax = 512;  // SlotRecord::holder has 9 bits.

// What a tenant gets when its quota is full (F22).
enum class WhenFull : uint8_t {
  kEvictOwn = 0,  // Its own parts make room.
  kReject = 1,    // Its puts are refused.
};
std::string_view WhenFullName(WhenFull when_full);

struct TenantLimits {
  uint64_t quota_bytes = 0;  // In RAM; 0: as much as there is.
  uint64_t floor_bytes = 0;  // Others' puts take nothing from it below this.
  WhenFull when_full = WhenFull::kEvictOwn;
  Retention retention{};  // Of puts that name none.
  friend bool operator==(const TenantLimits&, const TenantLimits&) = default;
};

struct Tenant {
  std::string name;
  TenantLimits limits{};
  uint64_t used_bytes = 0;    // Visible or being written.
  uint64_t pinned_bytes = 0;  // Part of it: hard pins.
  uint64_t evicted_parts = 0, evicted_bytes = 0;
  uint64_t rejected_parts = 0, rejected_bytes = 0;
};

// Who holds a part, and how long: small numbers for (tenant, retention), and what each tenant has in RAM.
// Number 0 is the default tenant's plain holding and is always there; others are free again with their last
// part. Owner: RamTier. Thread: the shard's.
class HolderTable {
 public:
  struct Holder {
    TenantIndex tenant = 0;
    Retention retention{};
    uint64_t parts = 0;
  };

  HolderTable();

  // kNoTenant when kTenantsMax others are known.
  TenantIndex TenantNamed(std::string_view name);
  const std::vector<Tenant>& tenants() const { return tenants_; }
  Tenant& tenant(TenantIndex index) { return tenants_[index]; }
  void SetLimits(TenantIndex index, const TenantLimits& limits);
  bool HasFloors() const { return has_floors_; }
  // Gives the row of a tenant that has neither limits nor parts to another.
  void Rename(TenantIndex index, std::string_view name);

  // A number for it, good until the next call that makes one; charge it at once. kNoHolder: too many.
  HolderId Number(TenantIndex tenant, const Retention& retention);
  const Holder& holder(HolderId id) const { return holders_[id]; }
  Tenant& TenantOf(HolderId id) { return tenants_[holders_[id].tenant]; }

  void Charge(HolderId id, uint32_t bytes);
  void Uncharge(HolderId id, uint32_t bytes);

 private:
  std::vector<Tenant> tenants_;
  std::vector<Holder> holders_;
  bool has_floors_ = false;
};

}  // namespace cistern
