#include "client/core/testing/fake_transport.h"

#include <algorithm>
#include <cstring>

#include "core/crc32c.h"

namespace cistern {

absl::StatusOr<PeerId> FakeTransport::Connect(const std::string& address, const ConnectOptions& options) {
  ++connect_calls[address];
  const auto it = nodes.find(address);
  const PeerId id = next_++;
  if (it == nodes.end() || it->second->refuse) {
    refused_.push_back(id);
    return id;
  }
  auto peer = std::make_unique<Peer>();
  peer->id = id;
  peer->node = it->second;
  peer->path.kind = PathKind::kLoopback;
  peer->path.one_sided = it->second->one_sided && options.allow_map;
  peer->window = options.window;
  ++it->second->connects;
  peers_[id] = std::move(peer);
  return id;
}

const PeerPath* FakeTransport::Path(PeerId id) const {
  const auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : &it->second->path;
}

absl::Status FakeTransport::Send(PeerId id, const OutFrame& frame) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return absl::UnavailableError("no such peer");
  Peer& peer = *it->second;
  if (frame.flush) ++sends;
  FrameHeader header;
  header.type = frame.type;
  header.flags = frame.flags;
  header.request_id = frame.request_id;
  ++peer.node->frames[frame.type];
  if (frame.cookie != 0) {
    // The payload is read later, as a socket would: its memory has to stay until then.
    peer.puts.push_back({header,
                         {Bytes(frame.body.begin(), frame.body.end()),
                          std::vector<ConstSegment>(frame.payload.begin(), frame.payload.end())}});
    peer.put_cookies.push_back(frame.cookie);
    return absl::OkStatus();
  }
  if (!peer.node->silent) Answer(peer, header, frame.body);
  return absl::OkStatus();
}

void FakeTransport::Reply_(Peer& peer, const FrameHeader& header, FrameType type, Bytes body,
                           std::vector<std::byte> payload) {
  Reply reply;
  reply.header.type = type;
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
    return Reply_(peer, header, FrameType::kError, out);
  }
  switch (header.type) {
    case FrameType::kPing:
      return Reply_(peer, header, FrameType::kPong, {});
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
      return Reply_(peer, header, FrameType::kRenewReply, out);
    }
    case FrameType::kRelease: {
      IdList list;
      if (!list.Decode(body).ok()) return;
      for (const uint64_t id : list.ids) peer.node->plans.erase(id);
      return;
    }
    case FrameType::kAbort: {
      IdList list;
      if (!list.Decode(body).ok()) return;
      for (const uint64_t id : list.ids) peer.node->offered.erase(id);
      return;
    }
    case FrameType::kStats:
      return Reply_(peer, header, FrameType::kStatsReply, Bytes(3, std::byte{7}));
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
  const PartResult stopped = hit == request.blocks.size() ? PartResult::kOk : PartResult::kMiss;
  Bytes out;
  if (header.type == FrameType::kLookup) {
    LookupReply{hit, stopped, node.incarnation}.Encode(out);
    return Reply_(peer, header, FrameType::kLookupReply, out);
  }
  PlanReply reply;
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
  Reply_(peer, header, FrameType::kPlanReply, out, std::move(payload));
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
  Reply_(peer, header, FrameType::kReadReply, out, std::move(payload));
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
  Reply_(peer, header, FrameType::kOfferReply, out);
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
  Reply_(peer, header, FrameType::kPutReply, out);
}

absl::Status FakeTransport::Pull(PeerId id, const PullRequest& request) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return absl::UnavailableError("no such peer");
  ++it->second->node->pulls;
  if (async_pulls) {
    it->second->pulls.push_back({request, {request.target.begin(), request.target.end()}});
  } else {
    DoPull(*it->second, request, request.target);
  }
  return absl::OkStatus();
}

void FakeTransport::DoPull(Peer& peer, const PullRequest& request, absl::Span<const Segment> target) {
  const FakePart& part = *reinterpret_cast<const FakePart*>(request.offset);
  std::vector<std::byte> bytes = part.bytes;
  PullResult result;
  result.trailer.generation = part.generation;
  result.trailer.fingerprint = part.block.fingerprint;
  std::memcpy(result.trailer.hash, part.block.hash.bytes.data(), 32);
  result.trailer.coord = part.coord.Packed();
  result.trailer.length = static_cast<uint32_t>(part.bytes.size());
  result.trailer.crc = Crc32c(part.bytes.data(), part.bytes.size());
  if (peer.node->edit_pull) peer.node->edit_pull(result, bytes);
  size_t at = 0;
  for (const Segment& s : target) {
    const size_t take = std::min(s.bytes, bytes.size() - at);
    std::memcpy(s.data, bytes.data() + at, take);
    result.crc = Crc32cExtend(result.crc, s.data, take);
    at += take;
  }
  handler_->OnPulled(peer.id, request.pull_id, result);
}

bool FakeTransport::Cancel(PeerId id, uint64_t request_id) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return true;
  if (!can_cancel) return false;
  ++cancels;
  std::erase_if(it->second->replies, [&](const Reply& r) { return r.header.request_id == request_id; });
  return true;
}

void FakeTransport::Fence(PeerId id, const absl::Status& why) {
  if (peers_.erase(id) == 0) return;
  ++fences;
  handler_->OnPeerDown(id, why);
}

void FakeTransport::Drop(FakeNode& node) {
  std::vector<PeerId> ids;
  for (const auto& [id, peer] : peers_) {
    if (peer->node == &node) ids.push_back(id);
  }
  for (const PeerId id : ids) {
    peers_.erase(id);
    handler_->OnPeerDown(id, absl::UnavailableError("connection reset"));
  }
  node.plans.clear();
}

bool FakeTransport::Land(PeerId id, Reply& reply) {
  if (!reply.begun) {
    reply.begun = true;
    reply.drained = !handler_->OnPayload(id, reply.header, reply.body, reply.plan).ok();
  }
  if (reply.drained) return true;
  size_t left = payload_step == 0 ? reply.payload.size() : payload_step;
  while (left > 0 && reply.piece_at < reply.plan.pieces.size()) {
    const PayloadPlan::Piece& piece = reply.plan.pieces[reply.piece_at];
    size_t in = reply.in_piece;
    size_t take = std::min(left, piece.bytes - in);
    for (uint32_t s = 0; s < piece.segment_count; ++s) {
      const Segment& segment = reply.plan.segments[piece.first_segment + s];
      if (in >= segment.bytes) {
        in -= segment.bytes;
        continue;
      }
      take = std::min(take, segment.bytes - in);
      std::memcpy(segment.data + in, reply.payload.data() + reply.landed, take);
      break;
    }
    reply.landed += take;
    reply.in_piece += take;
    left -= take;
    if (reply.in_piece == piece.bytes) ++reply.piece_at, reply.in_piece = 0;
  }
  return reply.landed == reply.payload.size() || reply.piece_at == reply.plan.pieces.size();
}

bool FakeTransport::Deliver(PeerId id) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return false;
  Peer& peer = *it->second;
  if (peer.node->silent) return false;
  if (!peer.up) {
    peer.up = true;
    HelloAck ack;
    ack.node_id = peer.node->id;
    ack.incarnation = peer.node->incarnation;
    ack.shard = peer.node->shard;
    ack.shards = peer.node->shards;
    handler_->OnPeerUp(id, ack);
    return true;
  }
  if (!peer.put_cookies.empty()) {
    const auto put = std::move(peer.puts.front());
    const uint64_t cookie = peer.put_cookies.front();
    peer.puts.erase(peer.puts.begin());
    peer.put_cookies.pop_front();
    AnswerPut(peer, put.first, put.second.first, put.second.second);
    handler_->OnSent(id, cookie);
    return true;
  }
  if (!peer.pulls.empty() && !hold_pulls) {
    const HeldPull pull = std::move(peer.pulls.front());
    peer.pulls.pop_front();
    DoPull(peer, pull.request, pull.target);
    return true;
  }
  if (peer.node->hold || peer.replies.empty()) return false;
  if (peer.replies.front().header.type == peer.node->hold_type) {
    if (peer.replies.size() == 1) return false;
    std::rotate(peer.replies.begin(), peer.replies.begin() + 1, peer.replies.end());
    if (peer.replies.front().header.type == peer.node->hold_type) return false;
  }
  Reply& front = peer.replies.front();
  if (!front.payload.empty() && !Land(id, front)) return true;
  if (peers_.find(id) == peers_.end()) return true;
  Reply reply = std::move(peer.replies.front());
  peer.replies.pop_front();
  if (reply.drained) return true;
  std::vector<uint32_t> crcs;
  for (const PayloadPlan::Piece& piece : reply.plan.pieces) {
    uint32_t crc = 0;
    for (uint32_t s = 0; s < piece.segment_count; ++s) {
      const Segment& segment = reply.plan.segments[piece.first_segment + s];
      crc = Crc32cExtend(crc, segment.data, segment.bytes);
    }
    crcs.push_back(crc);
  }
  handler_->OnFrame(id, InFrame{reply.header, reply.body, crcs});
  return true;
}

bool FakeTransport::Poll() {
  bool did = false;
  while (!refused_.empty()) {
    const PeerId id = refused_.back();
    refused_.pop_back();
    handler_->OnPeerDown(id, absl::UnavailableError("connection refused"));
    did = true;
  }
  std::vector<PeerId> ids;
  for (const auto& [id, peer] : peers_) ids.push_back(id);
  for (const PeerId id : ids) did |= Deliver(id);
  return did;
}

}  // namespace cistern
