// What a FakeNode says to each frame.
#include <utility>

#include "client/core/testing/fake_transport.h"
#include "core/crc32c.h"

namespace cistern {

void FakeTransport::SendReply(Peer& peer, const FrameHeader& header, FrameType type, Bytes body,
                              std::vector<std::byte> payload, uint16_t flags) {
  Reply reply;
  reply.header.type = type;
  reply.header.flags = flags;
  reply.header.request_id = header.request_id;
  reply.header.body_bytes = static_cast<uint32_t>(body.size());
  reply.header.payload_bytes = payload.size();
  reply.body = std::move(body);
  reply.payload = std::move(payload);
  peer.replies.push_back(std::move(reply));
}

void FakeTransport::Answer(Peer& peer, const FrameHeader& header, ByteView body) {
  Bytes out;
  if (peer.node->answer_error && peer.node->answer_error(header.type)) {
    ErrorBody{absl::StatusCode::kResourceExhausted, "told to"}.Encode(out);
    return SendReply(peer, header, FrameType::kError, out);
  }
  switch (header.type) {
    case FrameType::kPing:
      return SendReply(peer, header, FrameType::kPong, {});
    case FrameType::kLookup:
    case FrameType::kPlan:
      return AnswerChain(peer, header, body);
    case FrameType::kRead:
      return AnswerRead(peer, header, body);
    case FrameType::kOffer:
      return AnswerOffer(peer, header, body);
    case FrameType::kPut:
      return AnswerPut(peer, header, body, {});
    case FrameType::kRenew: {
      RenewRequest renew;
      if (!renew.Decode(body).ok()) return;
      RenewReply reply;
      reply.result = peer.node->plans.count(renew.plan_id) ? PartResult::kOk : PartResult::kLeaseExpired;
      reply.ttl_ms = peer.node->ttl_ms;
      reply.Encode(out);
      return SendReply(peer, header, FrameType::kRenewReply, out);
    }
    case FrameType::kRelease: {
      IdList list;
      if (!list.Decode(body).ok()) return;
      for (const uint64_t id : list.ids) peer.node->plans.erase(id);
      return;
    }
    case FrameType::kNote: {
      NoteRequest note;
      if (note.Decode(body).ok()) peer.node->notes.push_back(note);
      return;
    }
    case FrameType::kAgree: {
      AgreeRequest agree;
      if (!agree.Decode(body).ok()) return;
      AgreeReply none;
      AgreeReply& decision = agree.propose ? peer.node->decisions.try_emplace(agree.request).first->second
                             : peer.node->decisions.contains(agree.request)
                                 ? peer.node->decisions[agree.request]
                                 : none;
      if (agree.propose && decision.asked++ == 0) decision.tokens = agree.tokens;
      decision.incarnation = peer.node->incarnation;
      decision.Encode(out);
      return SendReply(peer, header, FrameType::kAgreeReply, out);
    }
    case FrameType::kAbort: {
      IdList list;
      if (!list.Decode(body).ok()) return;
      for (const uint64_t id : list.ids) peer.node->offered.erase(id);
      return;
    }
    case FrameType::kStats:
      return SendReply(peer, header, FrameType::kStatsReply, Bytes(3, std::byte{7}));
    default:
      return;
  }
}

PartDescriptor FakeTransport::Describe(const FakePart& part) const {
  PartDescriptor d;
  d.result = PartResult::kOk;
  d.length = static_cast<uint32_t>(part.bytes.size());
  d.crc = Crc32c(part.bytes.data(), part.bytes.size());
  d.offset = reinterpret_cast<uintptr_t>(&part);  // The fake's arena is the process.
  d.trailer_offset = 64;
  d.generation = part.generation;
  d.block = part.block;
  d.coord = part.coord;
  return d;
}

void FakeTransport::AnswerChain(Peer& peer, const FrameHeader& header, ByteView body) {
  FakeNode& node = *peer.node;
  ChainRequest request;
  if (!request.Decode(body).ok()) return;
  uint32_t hit = 0;
  std::vector<const FakePart*> found;
  for (; hit < request.blocks.size(); ++hit) {
    const size_t before = found.size();
    for (const PartCoord& coord : request.coords) {
      const FakePart* part = node.Find(request.blocks[hit].hash, coord);
      if (part != nullptr) found.push_back(part);
    }
    if (found.size() - before != request.coords.size()) {
      found.resize(before);
      break;
    }
  }
  const bool in_parts = (header.flags & kFlagInParts) != 0 && hit > node.in_parts;
  if (in_parts) {
    hit = node.in_parts;
    found.resize(size_t{hit} * request.coords.size());
  }
  const PartResult stopped = hit == request.blocks.size() ? PartResult::kOk : PartResult::kMiss;
  ReplyDetail detail;
  detail.present = node.tells_detail && (header.flags & kFlagDetail) != 0;
  if (detail.present && stopped != PartResult::kOk) detail.why = MissReason::kNeverSeen;
  for (uint32_t block = 0; block < hit && detail.present; ++block) {
    if (!node.tails.contains(request.blocks[block].hash)) continue;
    detail.tails.resize(block / 64 + 1);
    detail.tails[block / 64] |= uint64_t{1} << (block % 64);
  }
  Bytes out;
  if (header.type == FrameType::kLookup) {
    LookupReply{hit, stopped, node.incarnation, detail}.Encode(out);
    return SendReply(peer, header, FrameType::kLookupReply, out);
  }
  PlanReply reply;
  reply.detail = detail;
  reply.hit_blocks = hit;
  reply.stopped_by = stopped;
  reply.plan_id = request.plan_id;
  reply.ttl_ms = node.ttl_ms;
  reply.incarnation = node.incarnation;
  std::vector<std::byte> payload;
  for (const FakePart* part : found) {
    reply.parts.push_back(Describe(*part));
    if (header.flags & kFlagInline) payload.insert(payload.end(), part->bytes.begin(), part->bytes.end());
  }
  if (!(header.flags & kFlagOneShot)) node.plans[request.plan_id] = found;
  if (node.edit_plan) node.edit_plan(reply);
  if (node.edit_payload) node.edit_payload(payload);
  reply.Encode(out);
  SendReply(peer, header, FrameType::kPlanReply, out, std::move(payload),
            static_cast<uint16_t>(in_parts ? kFlagInParts : 0));
}

void FakeTransport::AnswerRead(Peer& peer, const FrameHeader& header, ByteView body) {
  FakeNode& node = *peer.node;
  ReadRequest request;
  if (!request.Decode(body).ok()) return;
  PlanReply reply;
  reply.plan_id = request.plan_id;
  reply.incarnation = node.incarnation;
  std::vector<std::byte> payload;
  for (const uint32_t index : request.parts) {
    const auto plan = node.plans.find(request.plan_id);
    if (plan == node.plans.end() || index >= plan->second.size()) {
      reply.parts.emplace_back().result = PartResult::kLeaseExpired;
      continue;
    }
    const FakePart& part = *plan->second[index];
    reply.parts.push_back(Describe(part));
    payload.insert(payload.end(), part.bytes.begin(), part.bytes.end());
  }
  if (node.edit_plan) node.edit_plan(reply);
  if (node.edit_payload) node.edit_payload(payload);
  Bytes out;
  reply.Encode(out);
  SendReply(peer, header, FrameType::kReadReply, out, std::move(payload));
}

void FakeTransport::AnswerOffer(Peer& peer, const FrameHeader& header, ByteView body) {
  FakeNode& node = *peer.node;
  ChainRequest request;
  if (!request.Decode(body).ok()) return;
  OfferReply reply;
  for (const BlockKey& block : request.blocks) {
    for (const PartCoord& coord : request.coords) {
      if (node.Find(block.hash, coord) != nullptr) {
        reply.slots.push_back({0, PartResult::kExists});
        continue;
      }
      node.offered[node.next_put] = {block, coord, {}};
      reply.slots.push_back({node.next_put++, PartResult::kOk});
    }
  }
  if (node.edit_offer) node.edit_offer(reply);
  Bytes out;
  reply.Encode(out);
  SendReply(peer, header, FrameType::kOfferReply, out);
}

void FakeTransport::AnswerPut(Peer& peer, const FrameHeader& header, ByteView body,
                              absl::Span<const ConstSegment> payload) {
  FakeNode& node = *peer.node;
  PutRequest request;
  if (!request.Decode(body).ok()) return;
  std::vector<std::byte> bytes;
  for (const ConstSegment& s : payload) bytes.insert(bytes.end(), s.data, s.data + s.bytes);
  size_t at = 0;
  PutReply reply;
  for (const PutRequest::Part& part : request.parts) {
    const std::byte* from = bytes.data() + at;
    if (header.flags & kFlagFromWindow) from = peer.window->data() + part.window_offset;
    at += part.length;
    const auto it = node.offered.find(part.put_id);
    PartResult result = PartResult::kOk;
    if (it == node.offered.end())
      result = PartResult::kStale;
    else if (Crc32c(from, part.length) != part.crc)
      result = PartResult::kCorrupt;
    if (result == PartResult::kOk) {
      it->second.bytes.assign(from, from + part.length);
      node.parts[{it->second.block.hash, it->second.coord.Packed()}] = it->second;
      node.offered.erase(it);
    }
    reply.results.push_back(result);
  }
  if (node.edit_put) node.edit_put(reply);
  Bytes out;
  reply.Encode(out);
  SendReply(peer, header, FrameType::kPutReply, out);
}

}  // namespace cistern
