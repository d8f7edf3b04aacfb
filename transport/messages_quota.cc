#include "transport/messages.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

// QUOTA: what tenants may have, and have.
namespace cistern {
namespace {

constexpr size_t kTenantRowBytesMin = 2 + 2 * 8 + 1 + 5 + 6 * 8;

void PutLimits(WireWriter& w, const QuotaLimits& limits) {
  w.Put(limits.quota_bytes);
  w.Put(limits.floor_bytes);
  w.PutBool(limits.reject_when_full);
  PutRetention(w, limits.retention);
}

void GetLimits(WireReader& r, QuotaLimits& limits) {
  limits.quota_bytes = r.Get<uint64_t>("quota_bytes");
  limits.floor_bytes = r.Get<uint64_t>("floor_bytes");
  limits.reject_when_full = r.GetBool("reject_when_full");
  GetRetention(r, limits.retention);
}

}  // namespace

void PutRetention(WireWriter& w, const Retention& retention) {
  w.Put(retention.ttl_s);
  w.Put(static_cast<uint8_t>((retention.sliding ? 1 : 0) | static_cast<uint8_t>(retention.pin) << 1));
}

void GetRetention(WireReader& r, Retention& retention) {
  retention.ttl_s = r.Get<uint32_t>("retention.ttl_s");
  const auto flags = r.Get<uint8_t>("retention.flags");
  const auto pin = static_cast<uint8_t>(flags >> 1);
  retention.sliding = (flags & 1) != 0;
  retention.pin = pin <= kPinKindMax ? static_cast<PinKind>(pin) : PinKind::kNone;
  if (!r.ok()) return;
  if (pin > kPinKindMax) r.Fail("retention.flags", "no such pin");
  if (!IsLegal(retention)) r.Fail("retention.ttl_s", "above kTtlSecondsMax, or sliding without a time");
}

void QuotaRequest::Encode(Bytes& out) const {
  WireWriter w(out);
  w.PutString(tenant, kTenantNameBytesMax);
  PutLimits(w, limits);
}

absl::Status QuotaRequest::Decode(ByteView body) {
  WireReader r("quota", body);
  r.GetString("tenant", kTenantNameBytesMax, tenant);
  GetLimits(r, limits);
  return r.Finish();
}

void QuotaReply::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(static_cast<uint32_t>(rows.size()));
  for (const Row& row : rows) {
    w.PutString(row.tenant, kTenantNameBytesMax);
    PutLimits(w, row.limits);
    for (const uint64_t figure : {row.used_bytes, row.pinned_bytes, row.evicted_parts, row.evicted_bytes,
                                  row.rejected_parts, row.rejected_bytes}) {
      w.Put(figure);
    }
  }
}

absl::Status QuotaReply::Decode(ByteView body) {
  WireReader r("quota_reply", body);
  rows.resize(r.GetCount("rows", kTenantsPerReplyMax, kTenantRowBytesMin));
  for (Row& row : rows) {
    r.GetString("rows.tenant", kTenantNameBytesMax, row.tenant);
    GetLimits(r, row.limits);
    for (uint64_t* figure : {&row.used_bytes, &row.pinned_bytes, &row.evicted_parts, &row.evicted_bytes,
                             &row.rejected_parts, &row.rejected_bytes}) {
      *figure = r.Get<uint64_t>("rows.figures");
    }
  }
  return r.Finish();
}

}  // namespace cistern
