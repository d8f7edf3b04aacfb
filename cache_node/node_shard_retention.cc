// How long a shard keeps what, and for whom: times to live, pins, quotas.
#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cache_node/disk/disk_tier.h"
#include "cache_node/hbm_tier.h"
#include "cache_node/node_shard.h"

namespace cistern {
namespace {

constexpr char kQuotaPrefix[] = "quota/";
constexpr Nanos kSweepEvery = 20 * kMillisecond;
constexpr uint32_t kSweepSlots = 8192;  // Of one turn: a million parts in 3 s.
constexpr size_t kTenantsToldMax = 16;  // In STATS; QUOTA tells all.

QuotaLimits ToWire(const TenantLimits& limits) {
  return {.quota_bytes = limits.quota_bytes,
          .floor_bytes = limits.floor_bytes,
          .reject_when_full = limits.when_full == WhenFull::kReject,
          .retention = limits.retention};
}
TenantLimits FromWire(const QuotaLimits& limits) {
  return {.quota_bytes = limits.quota_bytes,
          .floor_bytes = limits.floor_bytes,
          .when_full = limits.reject_when_full ? WhenFull::kReject : WhenFull::kEvictOwn,
          .retention = limits.retention};
}

// As it stands in the manifest, for people with `ldb`.
std::string ToText(const TenantLimits& limits) {
  return absl::StrCat("quota=", limits.quota_bytes, " floor=", limits.floor_bytes,
                      " reject=", limits.when_full == WhenFull::kReject ? 1 : 0,
                      " ttl=", limits.retention.ttl_s, " sliding=", limits.retention.sliding ? 1 : 0,
                      " pin=", static_cast<unsigned>(limits.retention.pin));
}
bool FromText(const std::string& text, TenantLimits& limits) {
  unsigned long long quota = 0, floor = 0;
  unsigned reject = 0, ttl = 0, sliding = 0, pin = 0;
  if (std::sscanf(text.c_str(), "quota=%llu floor=%llu reject=%u ttl=%u sliding=%u pin=%u", &quota, &floor,
                  &reject, &ttl, &sliding, &pin) != 6 ||
      pin > kPinKindMax) {
    return false;
  }
  limits = {.quota_bytes = quota,
            .floor_bytes = floor,
            .when_full = reject != 0 ? WhenFull::kReject : WhenFull::kEvictOwn,
            .retention = {.ttl_s = ttl, .sliding = sliding != 0, .pin = static_cast<PinKind>(pin)}};
  return IsLegal(limits.retention);
}

}  // namespace

// "tenant", or "tenant/namespace" beside the default one. kNoTenant: kTenantsMax others are connected, have
// limits or have parts here.
TenantIndex NodeShard::TenantOf(const Ticket& ticket) {
  HolderTable& holders = ram_.holders();
  std::string name = ticket.tenant;
  if (ticket.name_space != "default") absl::StrAppend(&name, "/", ticket.name_space);
  const TenantIndex known = holders.TenantNamed(name);
  if (known != kNoTenant) return known;
  std::vector<bool> connected(holders.tenants().size());
  for (const auto& [peer, state] : peers_) connected[state.tenant] = true;
  for (size_t i = 1; i < holders.tenants().size(); ++i) {
    const Tenant& row = holders.tenants()[i];
    if (connected[i] || row.used_bytes != 0 || row.limits != TenantLimits{}) continue;
    holders.Rename(static_cast<TenantIndex>(i), name);
    return static_cast<TenantIndex>(i);
  }
  return kNoTenant;
}

// Good until the next one is asked for.
HolderId NodeShard::HolderFor(PeerId peer, const ChainRequest& request) {
  const TenantIndex tenant = peers_.at(peer).tenant;
  const Retention& default_retention = ram_.holders().tenant(tenant).limits.retention;
  return ram_.holders().Number(tenant, request.retention.IsPlain() ? default_retention : request.retention);
}

// Parts that are here already, and are wanted for longer than they were.
void NodeShard::RetainOffered(const BlockHash& block, const Retention& retention, SlotId slot,
                              HolderId holder) {
  if (retention.IsPlain() || holder == kNoHolder) return;
  if (ram_.Retain(slot, holder) && disk_ != nullptr) disk_->Retain(block, retention);
}

void NodeShard::SweepExpired(Nanos now) {
  ram_.SweepExpired(kSweepSlots);
  if (hbm_ != nullptr) hbm_->tier().SweepExpired(kSweepSlots);
  next_sweep_ = now + kSweepEvery;
}

Nanos NodeShard::SweepWake() const {
  const bool timed = ram_.HasTimed() || (hbm_ != nullptr && hbm_->tier().HasTimed());
  return timed ? next_sweep_ : kNever;
}

void NodeShard::LoadQuotas() {
  for (const auto& [key, value] : disk_->manifest().loaded()) {
    if (!absl::StartsWith(key, kQuotaPrefix)) continue;
    const TenantIndex tenant = ram_.holders().TenantNamed(key.substr(sizeof(kQuotaPrefix) - 1));
    TenantLimits limits;
    const bool readable = FromText(value, limits);
    if (tenant != kNoTenant && readable) {
      ram_.holders().SetLimits(tenant, limits);
      continue;
    }
    ++counters_.quota_rows_left_out;
    disk_->Warn(absl::StrCat("manifest: ", key, " = '", value, "' is left out: ",
                             readable ? "kTenantsMax tenants are known"
                                      : "this version cannot read it; set it again with 'cistern quota'"));
  }
}

void NodeShard::Quota(PeerId peer, const InFrame& frame) {
  QuotaRequest request;
  absl::Status status = request.Decode(frame.body);
  if (!status.ok()) ++counters_.bad_frames;
  if (status.ok() && !request.tenant.empty()) {
    uint64_t floors = request.limits.floor_bytes;
    for (const Tenant& one : ram_.holders().tenants()) {
      if (one.name != request.tenant) floors += one.limits.floor_bytes;
    }
    // A tenant that is not known yet gets its row with its limits, and none when they are refused.
    const bool fits = floors <= ram_.capacity_bytes() / 2;
    const TenantIndex tenant = fits ? ram_.holders().TenantNamed(request.tenant) : kNoTenant;
    if (!fits) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "floors of all tenants would be ", floors >> 20, " MiB; they may be half of this shard's RAM, ",
          ram_.capacity_bytes() >> 21, " MiB; give a smaller --floor"));
    } else if (tenant == kNoTenant) {
      status = absl::ResourceExhaustedError("kTenantsMax tenants are known");
    } else {
      ram_.holders().SetLimits(tenant, FromWire(request.limits));
      const Tenant& row = ram_.holders().tenant(tenant);
      if (disk_ != nullptr) disk_->manifest().Put(absl::StrCat(kQuotaPrefix, row.name), ToText(row.limits));
    }
  }
  if (!status.ok()) return ReplyError(peer, frame.header.request_id, status);
  QuotaReply reply;
  for (const Tenant& row : ram_.holders().tenants()) {
    reply.rows.push_back({.tenant = row.name,
                          .limits = ToWire(row.limits),
                          .used_bytes = row.used_bytes,
                          .pinned_bytes = row.pinned_bytes,
                          .evicted_parts = row.evicted_parts,
                          .evicted_bytes = row.evicted_bytes,
                          .rejected_parts = row.rejected_parts,
                          .rejected_bytes = row.rejected_bytes});
  }
  Reply(peer, FrameType::kQuotaReply, frame.header.request_id, reply);
}

void NodeShard::AddTenants(NodeStats& stats) const {
  size_t told = 0;
  for (const Tenant& row : ram_.holders().tenants()) {
    if (told == kTenantsToldMax) break;
    if (row.limits == TenantLimits{} && row.name == "default") continue;
    ++told;
    const std::string name = absl::StrCat("tenant_", row.name);
    stats.counters[absl::StrCat(name, "_used_bytes")] = row.used_bytes;
    stats.counters[absl::StrCat(name, "_pinned_bytes")] = row.pinned_bytes;
    stats.counters[absl::StrCat(name, "_quota_bytes")] = row.limits.quota_bytes;
    stats.counters[absl::StrCat(name, "_evicted_bytes_total")] = row.evicted_bytes;
    stats.counters[absl::StrCat(name, "_rejected_bytes_total")] = row.rejected_bytes;
  }
}

}  // namespace cistern
