#include <algorithm>
#include <numeric>

#include "transport/messages.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

// LOOKUP, PLAN, OFFER (one request form), their replies, READ, RENEW, RELEASE.
namespace cistern {
namespace {

// One descriptor on the wire: its fields, then the block's key unless it is that of the part before.
constexpr uint8_t kSameBlock = 0x80;  // In the result's byte.
constexpr size_t kDescriptorBytes = 1 + 4 * 4 + 3 * 8;
static_assert(kPartResultMax < kSameBlock);
// The largest PLAN_REPLY that a legal request can ask for: every block's key once, every part's fields.
static_assert(kBlocksPerRequestMax * sizeof(BlockKey) + kPartsPerRequestMax * kDescriptorBytes + 64 <=
              kBodyBytesMax);

std::byte* StoreDescriptor(const PartDescriptor& part, bool same_block, std::byte* to) {
  StoreLe<uint8_t>(to, static_cast<uint8_t>(part.result) | (same_block ? kSameBlock : 0));
  StoreLe<uint32_t>(to + 1, part.region);
  StoreLe<uint32_t>(to + 5, part.length);
  StoreLe<uint32_t>(to + 9, part.crc);
  StoreLe<uint32_t>(to + 13, part.coord.Packed());
  StoreLe<uint64_t>(to + 17, part.offset);
  StoreLe<uint64_t>(to + 25, part.trailer_offset);
  StoreLe<uint64_t>(to + 33, part.generation);
  to += kDescriptorBytes;
  if (same_block) return to;
  std::memcpy(to, &part.block, sizeof(BlockKey));
  return to + sizeof(BlockKey);
}

void GetDescriptor(WireReader& r, const BlockKey* before, PartDescriptor& part) {
  std::byte raw[kDescriptorBytes];
  if (!r.GetRaw("parts", raw, sizeof(raw))) return;
  const auto first = LoadLe<uint8_t>(raw);
  const uint8_t result = first & ~kSameBlock;
  if (result > kPartResultMax) return r.Fail("parts.result", "no such result");
  part.result = static_cast<PartResult>(result);
  part.region = LoadLe<uint32_t>(raw + 1);
  part.length = LoadLe<uint32_t>(raw + 5);
  part.crc = LoadLe<uint32_t>(raw + 9);
  part.coord = PartCoord::Unpack(LoadLe<uint32_t>(raw + 13));
  part.offset = LoadLe<uint64_t>(raw + 17);
  part.trailer_offset = LoadLe<uint64_t>(raw + 25);
  part.generation = LoadLe<uint64_t>(raw + 33);
  if ((first & kSameBlock) == 0) {
    r.GetRaw("parts.block", &part.block, sizeof(BlockKey));
  } else if (before == nullptr) {
    r.Fail("parts.block", "the first has none to share");
  } else {
    part.block = *before;
  }
}

size_t DifferentSizes(absl::Span<const uint32_t> sizes) {
  size_t different = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (std::find(sizes.begin(), sizes.begin() + i, sizes[i]) == sizes.begin() + i) ++different;
  }
  return different;
}

void GetExtension(WireReader& r, ChainRequest& request) {
  request.coord_bytes.clear();
  request.tail_parts = 0;
  request.junction = false;
  request.retention = {};
  if (!r.ok() || r.left() == 0) return;
  r.GetRecords("coord_bytes", kCoordsPerRequestMax, request.coord_bytes);
  request.tail_parts = r.Get<uint32_t>("tail_parts");
  request.junction = r.GetBool("junction");
  if (r.ok() && r.left() > 0) {
    GetRetention(r, request.retention);
    if (r.ok() && request.retention.IsPlain()) r.Fail("retention", "one that says nothing");
  }
  if (!r.ok()) return;
  if (!request.coord_bytes.empty() && request.coord_bytes.size() != request.coords.size()) {
    r.Fail("coord_bytes",
           absl::StrCat(request.coord_bytes.size(), " sizes for ", request.coords.size(), " coords"));
  }
  if (DifferentSizes(request.coord_bytes) > kPartSizesPerRequestMax)
    r.Fail("coord_bytes", "more sizes than kPartSizesPerRequestMax");
  if (request.tail_parts > kCoordsPerRequestMax) r.Fail("tail_parts", "above kCoordsPerRequestMax");
  if (request.tail_parts != 0 && request.blocks.size() != 1) r.Fail("tail_parts", "a tail has one block");
  if (request.coord_bytes.empty() && request.tail_parts == 0 && !request.junction &&
      request.retention.IsPlain()) {
    r.Fail("coord_bytes", "an extension that says nothing");
  }
}

void PutDetail(WireWriter& w, const ReplyDetail& detail) {
  if (!detail.present) return;
  w.Put(detail.why);
  w.PutRecords(detail.tails);
}

// One bit for each of `blocks`, none behind them.
void GetDetail(WireReader& r, uint32_t blocks, ReplyDetail& detail) {
  detail.present = r.ok() && r.left() > 0;
  detail.why = MissReason::kNone;
  detail.tails.clear();
  if (!detail.present) return;
  const auto why = r.Get<uint8_t>("detail.why");
  if (r.ok() && why > kMissReasonMax) r.Fail("detail.why", "no such reason");
  if (r.ok()) detail.why = static_cast<MissReason>(why);
  r.GetRecords("detail.tails", kBlocksPerRequestMax / 64, detail.tails);
  if (detail.tails.size() > (uint64_t{blocks} + 63) / 64)
    r.Fail("detail.tails", "more than the hit has blocks");
}

}  // namespace

void ChainRequest::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Reserve(64 + coords.size() * sizeof(uint32_t) + runs.size() * sizeof(RunRef) +
            blocks.size() * sizeof(BlockKey));
  w.PutFixed(layout);
  w.Put(plan_id);
  w.Put(ttl_ms);
  w.Put(deadline_ms);
  w.Put(part_bytes);
  w.Put(depth);
  w.Put(static_cast<uint32_t>(coords.size()));
  for (const PartCoord& coord : coords) w.Put(coord.Packed());
  w.PutRecords(runs);
  w.PutRecords(blocks);
  if (coord_bytes.empty() && tail_parts == 0 && !junction && retention.IsPlain()) return;
  w.PutRecords(coord_bytes);
  w.Put(tail_parts);
  w.PutBool(junction);
  if (!retention.IsPlain()) PutRetention(w, retention);
}

uint64_t ChainRequest::BlockBytes() const {
  if (coord_bytes.empty()) return uint64_t{part_bytes} * coords.size();
  return std::accumulate(coord_bytes.begin(), coord_bytes.end(), uint64_t{0});
}

absl::Status ChainRequest::Decode(ByteView body) {
  WireReader r("chain_request", body);
  r.GetFixed("layout", layout);
  plan_id = r.Get<uint64_t>("plan_id");
  ttl_ms = r.Get<uint32_t>("ttl_ms");
  deadline_ms = r.Get<uint32_t>("deadline_ms");
  part_bytes = r.Get<uint32_t>("part_bytes");
  depth = r.Get<uint32_t>("depth");
  coords.resize(r.GetCount("coords", kCoordsPerRequestMax, sizeof(uint32_t)));
  for (PartCoord& coord : coords) coord = PartCoord::Unpack(r.Get<uint32_t>("coords"));
  r.GetRecords("runs", kBlocksPerRequestMax, runs);
  r.GetRecords("blocks", kBlocksPerRequestMax, blocks);
  if (r.ok() && uint64_t{blocks.size()} * coords.size() > kPartsPerRequestMax) {
    r.Fail("blocks", "blocks x coords above kPartsPerRequestMax");
  }
  GetExtension(r, *this);
  uint64_t in_runs = 0;
  for (const RunRef& run : runs) {
    if (run.count == 0) r.Fail("runs.count", "0");
    in_runs += run.count;
  }
  if (r.ok() && in_runs != blocks.size()) {
    r.Fail("runs.count", absl::StrCat("add up to ", in_runs, ", blocks are ", blocks.size()));
  }
  return r.Finish();
}

void LookupReply::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(hit_blocks);
  w.Put(stopped_by);
  w.Put(incarnation);
  PutDetail(w, detail);
}

absl::Status LookupReply::Decode(ByteView body) {
  WireReader r("lookup_reply", body);
  hit_blocks = r.Get<uint32_t>("hit_blocks");
  stopped_by = r.GetResult("stopped_by");
  incarnation = r.Get<uint64_t>("incarnation");
  if (r.ok() && hit_blocks > kBlocksPerRequestMax) r.Fail("hit_blocks", "above kBlocksPerRequestMax");
  GetDetail(r, hit_blocks, detail);
  return r.Finish();
}

void PlanReply::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(hit_blocks);
  w.Put(stopped_by);
  w.Put(plan_id);
  w.Put(ttl_ms);
  w.Put(incarnation);
  w.Put(static_cast<uint32_t>(parts.size()));
  if (parts.empty()) return PutDetail(w, detail);
  std::byte* const begin = w.Grow(parts.size() * (kDescriptorBytes + sizeof(BlockKey)));
  std::byte* to = begin;
  const PartDescriptor* before = nullptr;
  for (const PartDescriptor& part : parts) {
    to = StoreDescriptor(part, before != nullptr && before->block == part.block, to);
    before = &part;
  }
  out.resize(static_cast<size_t>(to - out.data()));
  PutDetail(w, detail);
}

absl::Status PlanReply::Decode(ByteView body) {
  WireReader r("plan_reply", body);
  hit_blocks = r.Get<uint32_t>("hit_blocks");
  stopped_by = r.GetResult("stopped_by");
  plan_id = r.Get<uint64_t>("plan_id");
  ttl_ms = r.Get<uint32_t>("ttl_ms");
  incarnation = r.Get<uint64_t>("incarnation");
  if (r.ok() && hit_blocks > kBlocksPerRequestMax) r.Fail("hit_blocks", "above kBlocksPerRequestMax");
  parts.resize(r.GetCount("parts", kPartsPerRequestMax, kDescriptorBytes));
  const BlockKey* before = nullptr;
  for (PartDescriptor& part : parts) {
    GetDescriptor(r, before, part);
    if (!r.ok()) break;
    before = &part.block;
  }
  GetDetail(r, hit_blocks, detail);
  return r.Finish();
}

void ReadRequest::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(plan_id);
  w.Put(deadline_ms);
  w.PutRecords(parts);
}

absl::Status ReadRequest::Decode(ByteView body) {
  WireReader r("read", body);
  plan_id = r.Get<uint64_t>("plan_id");
  deadline_ms = r.Get<uint32_t>("deadline_ms");
  r.GetRecords("parts", kPartsPerRequestMax, parts);
  return r.Finish();
}

void RenewRequest::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(plan_id);
  w.Put(ttl_ms);
}

absl::Status RenewRequest::Decode(ByteView body) {
  WireReader r("renew", body);
  plan_id = r.Get<uint64_t>("plan_id");
  ttl_ms = r.Get<uint32_t>("ttl_ms");
  return r.Finish();
}

void RenewReply::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(result);
  w.Put(ttl_ms);
}

absl::Status RenewReply::Decode(ByteView body) {
  WireReader r("renew_reply", body);
  result = r.GetResult("result");
  ttl_ms = r.Get<uint32_t>("ttl_ms");
  return r.Finish();
}

void IdList::Encode(Bytes& out) const { WireWriter(out).PutRecords(ids); }

absl::Status IdList::Decode(ByteView body) {
  WireReader r("id_list", body);
  r.GetRecords("ids", kPartsPerRequestMax, ids);
  return r.Finish();
}

}  // namespace cistern
