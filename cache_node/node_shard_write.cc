// OFFER, PUT, ABORT of a shard.
#include <algorithm>

#include "cache_node/disk/disk_tier.h"
#include "cache_node/hbm_tier.h"
#include "cache_node/node_shard.h"
#include "core/placement.h"

namespace cistern {

// First of two passes: which offered parts are here already. No slot is reserved meanwhile, so no answer goes
// stale.
void NodeShard::JudgeOffered(const ChainRequest& request, uint32_t blocks_here, HolderId holder) {
  const auto coords = static_cast<uint32_t>(request.coords.size());
  const LayoutIndex layout = ram_.FindLayout(request.layout);
  const size_t pairs = size_t{blocks_here} * coords;
  slots_.clear();
  slot_pairs_.clear();
  size_t leading = 0;  // Pairs that are here, up to the first that is not.
  size_t first_missing = pairs;
  for (size_t from = 0; from < pairs; from += kProbeBatchMax) {
    const size_t to = std::min(pairs, from + kProbeBatchMax);
    probes_.clear();
    for (size_t i = from; i < to; ++i) {
      probes_.push_back(
          {.hash = &request.blocks[i / coords].hash, .coord = request.coords[i % coords].Packed()});
    }
    ram_.FindBatch(absl::MakeSpan(probes_));
    for (size_t i = from; i < to; ++i) {
      SlotId slot = probes_[i - from].slot;
      if (slot != kNoSlot && ram_.IsExpired(ram_.record(slot))) ram_.Expire(slot), slot = kNoSlot;
      if (slot == kNoSlot) {
        first_missing = std::min(first_missing, i);
        const BlockKey& key = request.blocks[i / coords];
        if (hbm_ != nullptr && request.retention.IsPlain() &&
            hbm_->Judge(key, request.coords[i % coords], request.layout, request.BytesOf(i % coords)) ==
                PartResult::kOk) {
          offer_reply_.slots[i].result = PartResult::kExists;
          continue;
        }
        if (disk_ == nullptr) continue;
        const PartResult there = disk_->Judge(request.blocks[i / coords], request.coords[i % coords],
                                              request.layout, request.BytesOf(i % coords));
        if (there == PartResult::kOk) {
          offer_reply_.slots[i].result = PartResult::kExists;
          disk_->Retain(request.blocks[i / coords].hash, request.retention);
        }
        if (there == PartResult::kLayout) offer_reply_.slots[i].result = there;
        continue;
      }
      const PartResult judged =
          ram_.Judge(slot, request.blocks[i / coords].fingerprint, layout, request.BytesOf(i % coords));
      // A miss here means another block of the same hash: it cannot be stored beside this one (F01).
      offer_reply_.slots[i].result = judged == PartResult::kOk     ? PartResult::kExists
                                     : judged == PartResult::kMiss ? PartResult::kInvalid
                                                                   : judged;
      if (judged != PartResult::kOk) continue;
      RetainOffered(request.blocks[i / coords].hash, request.retention, slot, holder);
      slots_.push_back(slot);
      slot_pairs_.push_back(static_cast<uint32_t>(i));
      if (first_missing == pairs && leading == i) ++leading;
    }
  }
  BeginUses(request, leading, static_cast<uint32_t>(first_missing / coords), /*to_store=*/true);
  TouchAll(request);  // A writer has just computed these blocks: they are in use.
}

PartResult NodeShard::ReserveOffered(PeerId peer, const ChainRequest& request, uint32_t block, uint32_t coord,
                                     Nanos deadline, HolderId holder, uint64_t& put_id) {
  if (!puts_.HasRoom(peer)) return PartResult::kBusy;
  SlotId slot = kNoSlot;
  const uint32_t bytes = request.BytesOf(coord);
  const PartResult reserved = ram_.Reserve(bytes, Tick(), slot, holder);
  if (reserved != PartResult::kOk) return reserved;
  put_id = puts_.Add({.peer = peer,
                      .slot = slot,
                      .length = bytes,
                      .depth = request.depth + block,
                      .use = uses_[coord],
                      .deadline = deadline,
                      .key = {.block = request.blocks[block], .coord = request.coords[coord]},
                      .layout = request.layout,
                      .tail = {.parts = request.tail_parts, .junction = request.junction}});
  return PartResult::kOk;
}

void NodeShard::Offer(PeerId peer, const InFrame& frame) {
  if (HoldOffer(peer, frame) || !DecodeChain(peer, frame)) return;
  const auto coords = static_cast<uint32_t>(chain_.coords.size());
  const uint32_t blocks_here = BlocksOfThisShard(chain_);
  counters_.wrong_shard_blocks += chain_.blocks.size() - blocks_here;
  const uint32_t asked_ms = chain_.deadline_ms == 0 ? kPutDeadlineDefaultMs : chain_.deadline_ms;
  const Nanos deadline = clock_.Now() + std::min(asked_ms, kPutDeadlineMaxMs) * kMillisecond + kPutGrace;
  offer_reply_.slots.assign(chain_.blocks.size() * coords, OfferReply::Slot{});
  const HolderId holder = HolderFor(peer, chain_);
  JudgeOffered(chain_, blocks_here, holder);
  // Shallow blocks first: when not all fit, a prefix is what is worth having. One refusal speaks for the
  // rest, since a block lacks what was refused; so a full arena is told at once (F16).
  PartResult refused = holder == kNoHolder ? PartResult::kBusy : PartResult::kOk;
  for (uint32_t block = 0; block < chain_.blocks.size(); ++block) {
    for (uint32_t c = 0; c < coords; ++c) {
      OfferReply::Slot& slot = offer_reply_.slots[size_t{block} * coords + c];
      if (block >= blocks_here) {
        slot.result = PartResult::kWrongShard;
      } else if (slot.result == PartResult::kOk && refused != PartResult::kOk) {
        slot.result = refused;
      } else if (slot.result == PartResult::kOk) {
        slot.result = ReserveOffered(peer, chain_, block, c, deadline, holder, slot.put_id);
        if (slot.result != PartResult::kOk) refused = slot.result;
      }
      NodeCounters::Count(counters_.offer_parts, slot.result);
    }
  }
  Reply(peer, FrameType::kOfferReply, frame.header.request_id, offer_reply_);
}

// Whether a part of a PUT names a live put of this peer in this state, with its length. A put of wrong length
// is over.
PartResult NodeShard::CheckPut(PeerId peer, const PutRequest::Part& part, PutState state, uint32_t& put) {
  const auto found = puts_.Find(peer, part.put_id);
  if (!found.has_value())
    return PartResult::kStale;  // Used, expired, aborted, or never given to this peer (F19).
  const PutTable::Row& row = puts_.row(*found);
  if (row.state != state) return PartResult::kInvalid;
  if (row.length != part.length) {
    if (state == PutState::kOffered) AbandonPut(*found);
    return PartResult::kInvalid;
  }
  put = *found;
  return PartResult::kOk;
}

absl::Status NodeShard::OnPayload(PeerId peer, const FrameHeader& header, ByteView body, PayloadPlan& plan) {
  const auto refuse = [&](absl::Status why) {
    ++counters_.bad_frames;
    ReplyError(peer, header.request_id, why);
    return why;
  };
  const auto state = peers_.find(peer);
  if (state == peers_.end()) return absl::UnavailableError("no such peer");
  if (header.type != FrameType::kPut || (header.flags & kFlagFromWindow) != 0) {
    return refuse(absl::InvalidArgumentError("a node takes payload with PUT alone"));
  }
  if ((state->second.rights & kRightWrite) == 0) {
    ++counters_.denied_requests;
    return refuse(absl::PermissionDeniedError("ticket lacks the right for this request"));
  }
  if (const absl::Status decoded = put_.Decode(body); !decoded.ok()) return refuse(decoded);
  uint64_t sum = 0;
  for (const PutRequest::Part& part : put_.parts) sum += part.length;
  if (sum != header.payload_bytes) {
    return refuse(absl::InvalidArgumentError("put.parts.length: does not add up to the payload"));
  }
  plan.Clear();
  for (const PutRequest::Part& part : put_.parts) {
    PayloadPlan::Piece piece{.bytes = part.length,
                             .first_segment = static_cast<uint32_t>(plan.segments.size())};
    uint32_t put = 0;
    if (CheckPut(peer, part, PutState::kOffered, put) == PartResult::kOk) {
      puts_.SetState(put, PutState::kReceiving, header.request_id);
      plan.segments.push_back({.data = ram_.data(puts_.row(put).slot), .bytes = part.length});
      piece.segment_count = 1;
    }
    plan.pieces.push_back(piece);
  }
  return absl::OkStatus();
}

PartResult NodeShard::CheckBytes(uint32_t put, uint32_t announced_crc, uint32_t arrived_crc) {
  if (announced_crc != arrived_crc) {
    ++counters_.corrupt_puts;
    AbandonPut(put);
    return PartResult::kCorrupt;
  }
  puts_.SetState(put, PutState::kArrived, 0);
  return PartResult::kOk;
}

// Makes the parts that arrived visible. Deepest first, so a parent is more recent than its children.
void NodeShard::PublishFrame(PeerId peer, const PutRequest& request, absl::Span<PartResult> results) {
  const uint32_t tick = Tick();
  published_.clear();
  published_depths_.clear();
  for (size_t i = request.parts.size(); i-- > 0;) {
    if (results[i] == PartResult::kOk) {
      uint32_t put = 0;
      results[i] = CheckPut(peer, request.parts[i], PutState::kArrived, put);
      if (results[i] == PartResult::kOk) {
        const PutTable::Row row = puts_.row(put);
        puts_.Remove(put);
        results[i] = ram_.Publish(row.slot, row.key, row.layout, row.length, request.parts[i].crc, row.depth,
                                  tick, row.use, row.tail);
        if (results[i] == PartResult::kOk) {
          counters_.put_bytes += row.length;
          published_.push_back(row.slot);
          published_depths_.push_back(row.depth);
        }
      }
    }
    NodeCounters::Count(counters_.put_parts, results[i]);
  }
  StoreOnDisk(published_, published_depths_);
}

void NodeShard::Put(PeerId peer, const InFrame& frame) {
  if ((frame.header.flags & kFlagFromWindow) != 0) return PutFromWindow(peer, frame);
  if (const absl::Status decoded = put_.Decode(frame.body); !decoded.ok()) {
    ++counters_.bad_frames;
    return ReplyError(peer, frame.header.request_id, decoded);
  }
  put_reply_.results.assign(put_.parts.size(), PartResult::kInvalid);
  for (size_t i = 0; i < put_.parts.size(); ++i) {
    uint32_t put = 0;
    PartResult& result = put_reply_.results[i];
    result = CheckPut(peer, put_.parts[i], PutState::kReceiving, put);
    if (result == PartResult::kOk && puts_.row(put).request_id != frame.header.request_id)
      result = PartResult::kInvalid;
    if (result != PartResult::kOk) continue;
    result = i < frame.piece_crcs.size() ? CheckBytes(put, put_.parts[i].crc, frame.piece_crcs[i])
                                         : PartResult::kInvalid;
  }
  PublishFrame(peer, put_, absl::MakeSpan(put_reply_.results));
  Reply(peer, FrameType::kPutReply, frame.header.request_id, put_reply_);
}

void NodeShard::AbandonPut(uint32_t put) {
  ram_.Abandon(puts_.row(put).slot);
  puts_.Remove(put);
}

void NodeShard::Abort(PeerId peer, const InFrame& frame) {
  if (const absl::Status decoded = ids_.Decode(frame.body); !decoded.ok()) {
    ++counters_.bad_frames;
    return;
  }
  for (const uint64_t id : ids_.ids) {
    const auto put = puts_.Find(peer, id);
    // A slot that bytes are moving into is not free; that put ends by itself.
    if (!put.has_value() || puts_.row(*put).state == PutState::kPulling ||
        puts_.row(*put).state == PutState::kReceiving) {
      continue;
    }
    ++counters_.puts_abandoned;
    AbandonPut(*put);
  }
}

void NodeShard::ExpirePuts(Nanos now) {
  while (const auto put = puts_.Due(now)) {
    const PutTable::Row row = puts_.row(*put);
    const bool moving = row.state == PutState::kPulling ||
                        (row.state == PutState::kReceiving && !transport_.Cancel(row.peer, row.request_id));
    if (moving) {  // Bytes may still land: only the peer's end makes the slot free.
      FenceSoon(row.peer, absl::DeadlineExceededError("put is past its deadline"));
      puts_.Move(*put, now + kSecond);
      continue;
    }
    ++counters_.puts_expired;
    AbandonPut(*put);
    if (row.state != PutState::kReceiving) continue;
    // Its frame was cancelled with all its parts, also those that have more time: left as they are, the end
    // of another frame of that name would pass for theirs.
    for (std::optional<uint32_t> at = puts_.AnyOf(row.peer); at.has_value();) {
      const PutTable::Row other = puts_.row(*at);
      if (other.state == PutState::kReceiving && other.request_id == row.request_id) {
        ++counters_.puts_expired;
        AbandonPut(*at);
      }
      at = other.next == UINT32_MAX ? std::nullopt : std::optional(other.next);
    }
    ReplyError(row.peer, row.request_id, absl::DeadlineExceededError("put is past its deadline"));
  }
}

}  // namespace cistern
