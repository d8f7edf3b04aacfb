#include "client/core/testing/fake_transport.h"

#include <algorithm>
#include <cstring>

#include "core/crc32c.h"

namespace cistern {

absl::StatusOr<PeerId> FakeTransport::Connect(const std::string& address, const ConnectOptions& options) {
  ++connect_calls[address];
  const auto it = nodes.find(address);
  const PeerId id = next_++;
  const bool denies = it != nodes.end() && it->second->denies;
  if (it == nodes.end() || it->second->refuse || denies) {
    refused_.emplace_back(id, denies ? absl::PermissionDeniedError("ticket: expired")
                                     : absl::UnavailableError("connection refused"));
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
  if (peer.node->newest_first && !peer.replies.front().begun)
    std::rotate(peer.replies.begin(), peer.replies.end() - 1, peer.replies.end());
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
    const auto [id, why] = refused_.back();
    refused_.pop_back();
    handler_->OnPeerDown(id, why);
    did = true;
  }
  std::vector<PeerId> ids;
  for (const auto& [id, peer] : peers_) ids.push_back(id);
  for (const PeerId id : ids) did |= Deliver(id);
  return did;
}

}  // namespace cistern
