// LOOKUP, PLAN, READ, RENEW, RELEASE of a shard.
#include <algorithm>
#include <numeric>

#include "cache_node/node_shard.h"
#include "core/placement.h"

namespace cistern {
namespace {

constexpr size_t kFirstBatch =
    16;  // A miss is mostly found at once; later batches fill the memory's pipeline.

Nanos LeaseTtl(uint32_t asked_ms) {
  const Nanos asked = (asked_ms == 0 ? kLeaseTtlDefaultMs : asked_ms) * kMillisecond;
  return std::min(asked, kGrantTtlMax);
}

}  // namespace

bool NodeShard::DecodeChain(PeerId peer, const InFrame& frame) {
  absl::Status decoded = chain_.Decode(frame.body);
  if (decoded.ok() && chain_.coords.empty())
    decoded = absl::InvalidArgumentError("chain_request.coords: none");
  if (decoded.ok()) return true;
  ++counters_.bad_frames;
  ReplyError(peer, frame.header.request_id, decoded);
  return false;
}

uint32_t NodeShard::BlocksOfThisShard(const ChainRequest& request) const {
  uint32_t blocks = 0;
  for (const RunRef& run : request.runs) {
    if (ShardOf(run.run_key, options_.shards) != options_.shard) break;
    blocks += run.count;
  }
  return blocks;
}

// Leading blocks that are here with every part asked for. Leases and touches nothing (F18).
NodeShard::ScanResult NodeShard::Scan(const ChainRequest& request, std::vector<SlotId>* slots) {
  const uint32_t blocks = BlocksOfThisShard(request);
  const auto coords = static_cast<uint32_t>(request.coords.size());
  const LayoutIndex layout = ram_.FindLayout(request.layout);
  ScanResult result;
  if (request.tail_parts != 0 && blocks != 0 && !IsTailHere(request.blocks[0].hash)) {
    result.stopped_by = PartResult::kMiss;  // Parts of a tail are worth nothing before all of them are here.
    return result;
  }
  const bool one_size = request.coord_bytes.empty();
  uint32_t block = 0, coord = 0;  // Next pair to ask for.
  for (size_t batch = kFirstBatch; result.hit_blocks < blocks; batch = kProbeBatchMax) {
    probes_.clear();
    for (; probes_.size() < batch && block < blocks; ++coord == coords ? (coord = 0, ++block) : 0) {
      probes_.push_back({.hash = &request.blocks[block].hash, .coord = request.coords[coord].Packed()});
    }
    ram_.FindBatch(absl::MakeSpan(probes_));
    // The batch began at block `hit_blocks`, somewhere among its coords.
    const uint32_t asked = block * coords + coord;
    uint32_t pair = asked - static_cast<uint32_t>(probes_.size());
    for (const Probe& probe : probes_) {
      const uint32_t of = coords == 1 ? pair : pair / coords;
      const PartResult part =
          probe.slot == kNoSlot
              ? PartResult::kMiss
              : ram_.Judge(probe.slot, request.blocks[of].fingerprint, layout,
                           one_size ? request.part_bytes : request.coord_bytes[pair - of * coords]);
      if (part != PartResult::kOk) {
        result.stopped_by = part;
        if (slots != nullptr) slots->resize(size_t{result.hit_blocks} * coords);
        return result;
      }
      if (slots != nullptr) slots->push_back(probe.slot);
      if (++pair % coords == 0) ++result.hit_blocks;
    }
  }
  if (blocks < request.blocks.size()) {
    counters_.wrong_shard_blocks += request.blocks.size() - blocks;
    result.stopped_by = PartResult::kWrongShard;
  }
  return result;
}

void NodeShard::CountBlocks(const ScanResult& scan, size_t asked) {
  counters_.lookup_blocks += asked;
  counters_.hit_blocks += scan.hit_blocks;
  counters_.miss_blocks += asked - scan.hit_blocks;
}

void NodeShard::Lookup(PeerId peer, const InFrame& frame) {
  if (!DecodeChain(peer, frame)) return;
  ScanResult scan = Scan(chain_, nullptr);
  if (HasTiersBelow() && scan.stopped_by == PartResult::kMiss) {
    scan.hit_blocks += BlocksBelow(chain_, scan.hit_blocks, scan.stopped_by);
  }
  if ((frame.header.flags & kFlagProbe) != 0) {
    counters_.probe_blocks += chain_.blocks.size();
  } else {
    CountBlocks(scan, chain_.blocks.size());
  }
  lookup_reply_.hit_blocks = scan.hit_blocks;
  lookup_reply_.stopped_by = scan.stopped_by;
  lookup_reply_.incarnation = incarnation_;
  FillDetail(frame, scan, lookup_reply_.detail);
  Reply(peer, FrameType::kLookupReply, frame.header.request_id, lookup_reply_);
}

void NodeShard::Describe(SlotId slot, PartDescriptor& out) const {
  const SlotTrailer& trailer = ram_.trailer(slot);
  const SlotRecord& record = ram_.record(slot);
  out.result = PartResult::kOk;
  out.region = 0;
  out.length = record.length;
  out.crc = trailer.crc;
  out.offset = ram_.Offset(slot);
  out.trailer_offset = ram_.TrailerOffset(slot);
  out.generation = trailer.generation;
  std::copy_n(trailer.hash, out.block.hash.bytes.size(), out.block.hash.bytes.begin());
  out.block.fingerprint = trailer.fingerprint;
  out.coord = PartCoord::Unpack(trailer.coord);
}

bool NodeShard::TryLeaseAll(absl::Span<const SlotId> slots) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (ram_.TryLease(slots[i])) continue;
    while (i-- > 0) ram_.Unlease(slots[i]);
    return false;
  }
  return true;
}

void NodeShard::Plan(PeerId peer, const InFrame& frame) {
  if (!DecodeChain(peer, frame)) return;
  const bool with_bytes = (frame.header.flags & kFlagInline) != 0;
  const bool one_shot = with_bytes && (frame.header.flags & kFlagOneShot) != 0;
  const Nanos ttl = LeaseTtl(chain_.ttl_ms);
  const Nanos now = clock_.Now();
  if (!one_shot && (chain_.plan_id == 0 || leases_.HasPlan(peer, chain_.plan_id))) {
    ++counters_.bad_frames;
    return ReplyError(peer, frame.header.request_id,
                      absl::InvalidArgumentError("plan.plan_id: 0, or already a plan of this client"));
  }
  slots_.clear();
  held_.clear();
  payload_.clear();
  ScanResult scan = Scan(chain_, &slots_);
  bool more = false;  // On its way from the disk, and the asker takes the answer in parts.
  const bool comes_again = disk_ != nullptr && TakesParts(frame) && scan.hit_blocks > 0;
  if (HasTiersBelow() && scan.stopped_by == PartResult::kMiss &&
      (resuming_ != Resuming::kYes || comes_again)) {
    PartResult why = PartResult::kOk;
    const uint32_t below = BlocksBelow(chain_, scan.hit_blocks, why);
    if (StageFromHbm(peer, frame, scan.hit_blocks, below)) return;
    if (StageFirst(peer, frame, scan.hit_blocks, below)) return;
    more = comes_again && below > 0;
  }
  if (scan.hit_blocks > 0 && !one_shot) {
    if (!leases_.HasRoom(peer) || !TryLeaseAll(slots_)) {
      slots_.clear();
      scan = {.hit_blocks = 0, .stopped_by = PartResult::kBusy};
    } else {
      leases_.AddPlan(peer, chain_.plan_id, slots_, now + ttl + kLeaseGrace);
      ++counters_.plans;
    }
  }
  more &= scan.hit_blocks > 0;
  CountBlocks(scan, more ? scan.hit_blocks : chain_.blocks.size());
  slot_pairs_.resize(slots_.size());
  std::iota(slot_pairs_.begin(), slot_pairs_.end(), 0u);
  if (scan.stopped_by != PartResult::kBusy) {
    BeginUses(chain_, slots_.size(), more ? UINT32_MAX : scan.hit_blocks, /*to_store=*/false);
    TouchAll(chain_);
    HeatRuns(chain_, scan.hit_blocks);
  }
  plan_reply_.hit_blocks = scan.hit_blocks;
  plan_reply_.stopped_by = scan.stopped_by;
  FillDetail(frame, scan, plan_reply_.detail);
  plan_reply_.plan_id = chain_.plan_id;  // Also where no lease is left: the asker compares.
  plan_reply_.ttl_ms = one_shot ? 0 : static_cast<uint32_t>(ttl / kMillisecond);
  plan_reply_.parts.resize(slots_.size());
  uint64_t bytes = 0;
  // What does not fit into one payload is kBusy from there on: whole blocks, so that what is sent is a
  // prefix.
  const uint64_t block_bytes = chain_.BlockBytes();
  const uint64_t blocks_sent =
      with_bytes ? kPayloadBytesMax / std::max<uint64_t>(block_bytes, 1) : UINT64_MAX;
  const uint64_t parts_sent = blocks_sent == UINT64_MAX ? UINT64_MAX : blocks_sent * chain_.coords.size();
  for (size_t i = 0; i < slots_.size(); ++i) {
    Describe(slots_[i], plan_reply_.parts[i]);
    if (with_bytes && (i >= parts_sent || !TakePayload(slots_[i], bytes))) {
      plan_reply_.parts[i].result = PartResult::kBusy;
    }
    NodeCounters::Count(counters_.plan_parts, plan_reply_.parts[i].result);
  }
  SendParts(peer, FrameType::kPlanReply, frame.header.request_id,
            static_cast<uint16_t>(more ? kFlagInParts : 0));
}

// Queues a slot's bytes for the reply under construction; false when they do not fit.
bool NodeShard::TakePayload(SlotId slot, uint64_t& bytes) {
  const uint32_t length = ram_.record(slot).length;
  if (bytes + length > kPayloadBytesMax) return false;
  bytes += length;
  held_.push_back(slot);
  payload_.push_back({.data = ram_.data(slot), .bytes = length});
  return true;
}

// Sends plan_reply_ with payload_, whose slots (held_) stay leased until the transport is done with them.
void NodeShard::SendParts(PeerId peer, FrameType type, uint64_t request_id, uint16_t flags) {
  uint64_t cookie = 0;
  if (!held_.empty()) {
    if (TryLeaseAll(held_)) {
      cookie = leases_.AddHold(peer, held_, clock_.Now() + kPayloadHoldMax);
      if (cookie == 0) {
        for (const SlotId slot : held_) ram_.Unlease(slot);
      }
    }
    if (cookie == 0) {
      for (PartDescriptor& part : plan_reply_.parts) {
        if (part.result == PartResult::kOk) part.result = PartResult::kBusy;
      }
      payload_.clear();
    }
  }
  for (const ConstSegment& segment : payload_) counters_.inline_bytes += segment.bytes;
  plan_reply_.incarnation = incarnation_;
  body_.clear();
  plan_reply_.Encode(body_);
  SendOrFence(peer, OutFrame{.type = type,
                             .flags = flags,
                             .request_id = request_id,
                             .body = body_,
                             .payload = payload_,
                             .cookie = cookie});
}

void NodeShard::Read(PeerId peer, const InFrame& frame) {
  if (const absl::Status decoded = read_.Decode(frame.body); !decoded.ok()) {
    ++counters_.bad_frames;
    return ReplyError(peer, frame.header.request_id, decoded);
  }
  held_.clear();
  payload_.clear();
  const auto plan = leases_.FindPlan(peer, read_.plan_id, clock_.Now());
  plan_reply_.hit_blocks = 0;
  plan_reply_.detail.present = false;
  plan_reply_.stopped_by = PartResult::kOk;
  plan_reply_.plan_id = read_.plan_id;
  plan_reply_.ttl_ms = 0;
  plan_reply_.parts.resize(read_.parts.size());
  uint64_t bytes = 0;
  for (size_t i = 0; i < read_.parts.size(); ++i) {
    PartDescriptor& part = plan_reply_.parts[i];
    part = PartDescriptor{};
    if (!plan.has_value()) {
      part.result = PartResult::kLeaseExpired;
    } else if (const auto& slots = leases_.row(*plan).slots; read_.parts[i] >= slots.size()) {
      part.result = PartResult::kInvalid;
    } else {
      Describe(slots[read_.parts[i]], part);
      if (!TakePayload(slots[read_.parts[i]], bytes)) part.result = PartResult::kBusy;
    }
    NodeCounters::Count(counters_.read_parts, part.result);
  }
  SendParts(peer, FrameType::kReadReply, frame.header.request_id);
}

void NodeShard::Renew(PeerId peer, const InFrame& frame) {
  RenewRequest request;
  if (const absl::Status decoded = request.Decode(frame.body); !decoded.ok()) {
    ++counters_.bad_frames;
    return ReplyError(peer, frame.header.request_id, decoded);
  }
  const Nanos now = clock_.Now();
  RenewReply reply{.result = PartResult::kLeaseExpired, .ttl_ms = 0};
  if (const auto plan = leases_.FindPlan(peer, request.plan_id, now)) {
    const Nanos ttl = LeaseTtl(request.ttl_ms);
    leases_.Renew(*plan, now + ttl + kLeaseGrace);
    reply = {.result = PartResult::kOk, .ttl_ms = static_cast<uint32_t>(ttl / kMillisecond)};
  }
  Reply(peer, FrameType::kRenewReply, frame.header.request_id, reply);
}

void NodeShard::Release(PeerId peer, const InFrame& frame) {
  if (const absl::Status decoded = ids_.Decode(frame.body); !decoded.ok()) {
    ++counters_.bad_frames;
    return;
  }
  const Nanos now = clock_.Now();
  for (const uint64_t id : ids_.ids) {
    const auto plan = leases_.FindPlan(peer, id, now);
    if (!plan.has_value()) continue;
    // Once more: what was stored under this plan in the meantime is deeper, and must not outlive its parents.
    const auto& slots = leases_.row(*plan).slots;
    const uint32_t tick = Tick();
    for (size_t i = slots.size(); i-- > 0;) ram_.Refresh(slots[i], tick);
    EndRow(*plan);
  }
}

void NodeShard::EndRow(uint32_t row) {
  leases_.Remove(row, ended_);
  for (size_t i = ended_.size(); i-- > 0;) ram_.Unlease(ended_[i]);
}

}  // namespace cistern
