#include "transport/loopback_transport.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/status_macros.h"
#include "transport/frame_limits.h"
#include "transport/loopback_internal.h"

namespace cistern {
namespace {

absl::Status CheckPlan(const PayloadPlan& plan, uint64_t payload_bytes) {
  uint64_t total = 0;
  for (const PayloadPlan::Piece& piece : plan.pieces) {
    total += piece.bytes;
    if (piece.segment_count == 0) continue;
    if (piece.first_segment + size_t{piece.segment_count} > plan.segments.size()) {
      return absl::InternalError("payload plan names segments it does not have");
    }
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < piece.segment_count; ++i) bytes += plan.segments[piece.first_segment + i].bytes;
    if (bytes != piece.bytes) return absl::InternalError("segments of a piece do not add up to its bytes");
  }
  if (total != payload_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload of ", payload_bytes, " bytes where ", total, " were expected"));
  }
  return absl::OkStatus();
}

// The segment that byte `at` of a piece goes to; at most `bytes` long.
Segment SegmentAt(const PayloadPlan& plan, const PayloadPlan::Piece& piece, size_t at, size_t bytes) {
  for (uint32_t i = 0; i < piece.segment_count; ++i) {
    const Segment& segment = plan.segments[piece.first_segment + i];
    if (at < segment.bytes) return {segment.data + at, std::min(bytes, segment.bytes - at)};
    at -= segment.bytes;
  }
  CISTERN_CHECK(false);
  return {};
}

}  // namespace

LoopbackTransport::LoopbackTransport(LoopbackNetwork& network, LoopbackOptions options)
    : network_(network), options_(std::move(options)) {
  network_.endpoints_.push_back(this);
  for (const std::string& name : options_.listen) network_.Register(name, this);
}

LoopbackTransport::~LoopbackTransport() {
  for (auto& [id, peer] : peers_) network_.Close(peer->connection, peer->side, false);
  network_.Unregister(this);
}

LoopbackTransport::Peer* LoopbackTransport::Find(PeerId peer) {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? nullptr : found->second.get();
}

absl::Status LoopbackTransport::FlushDeferred(Peer& peer) {
  while (!peer.deferred.empty()) {
    const Peer::Deferred& held = peer.deferred.front();
    OutFrame frame{held.type, held.flags, held.request_id, held.body, held.payload, held.cookie, true};
    CISTERN_RETURN_IF_ERROR(network_.SendFrame(peer.connection, peer.side, frame));
    peer.deferred.erase(peer.deferred.begin());
    --deferred_frames_;
  }
  return absl::OkStatus();
}

absl::Status LoopbackTransport::Send(PeerId id, const OutFrame& frame) {
  Peer* peer = Find(id);
  if (peer == nullptr) return absl::UnavailableError("no such peer any more");
  if (peer->state != Peer::State::kUp) return absl::FailedPreconditionError("peer is not up yet");
  CISTERN_RETURN_IF_ERROR(CheckFrameBytes(frame));
  if (!frame.flush && peer->deferred.size() < kSendQueueFramesMax / 2) {
    Peer::Deferred held{frame.type,
                        frame.flags,
                        frame.request_id,
                        Bytes(frame.body.begin(), frame.body.end()),
                        {frame.payload.begin(), frame.payload.end()},
                        frame.cookie};
    peer->deferred.push_back(std::move(held));
    ++deferred_frames_;
    return absl::OkStatus();
  }
  CISTERN_RETURN_IF_ERROR(FlushDeferred(*peer));
  return network_.SendFrame(peer->connection, peer->side, frame);
}

absl::Status LoopbackTransport::Pull(PeerId id, const PullRequest& request) {
  Peer* peer = Find(id);
  if (peer == nullptr) return absl::UnavailableError("no such peer any more");
  if (peer->state != Peer::State::kUp || !peer->path.one_sided) {
    return absl::FailedPreconditionError("this path has no one-sided reads");
  }
  uint64_t bytes = 0;
  for (const Segment& segment : request.target) bytes += segment.bytes;
  if (bytes != request.bytes) return absl::InvalidArgumentError("target does not have the bytes of the pull");
  const auto region = peer->regions.find(request.region);
  network_.StartPull(peer->connection, peer->side, request,
                     region == peer->regions.end() ? nullptr : region->second);
  return absl::OkStatus();
}

bool LoopbackTransport::Cancel(PeerId id, uint64_t request_id) {
  Peer* peer = Find(id);
  if (peer == nullptr) return true;
  if (!options_.can_cancel) return false;
  Peer::Incoming& incoming = peer->incoming;
  if (incoming.active && incoming.header.request_id == request_id) {
    incoming.dropped = true;
    network_.Count("cancelled_mid_payload");
    return true;
  }
  if (peer->cancelled.size() >= kLoopbackCancelledMax) return false;
  peer->cancelled.insert(request_id);
  return true;
}

void LoopbackTransport::Fence(PeerId peer, const absl::Status& why) { Down(peer, why); }

const PeerPath* LoopbackTransport::Path(PeerId id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second->path;
}

void LoopbackTransport::Down(PeerId id, const absl::Status& why) {
  Peer* peer = Find(id);
  if (peer == nullptr) return;
  const bool known = peer->side == 0 || peer->state == Peer::State::kUp;
  network_.Close(peer->connection, peer->side, false);
  deferred_frames_ -= peer->deferred.size();
  peers_.erase(id);
  if (known) handler_->OnPeerDown(id, why);
}

bool LoopbackTransport::Poll() {
  bool any = network_.Route();
  if (deferred_frames_ != 0) {
    // In the order of their ids: the map's own order is not the same in every build.
    std::vector<PeerId> waiting;
    for (auto& [id, peer] : peers_) {
      if (!peer->deferred.empty()) waiting.push_back(id);
    }
    std::sort(waiting.begin(), waiting.end());
    for (const PeerId id : waiting) {
      const absl::Status sent = FlushDeferred(*Find(id));
      if (!sent.ok()) Down(id, sent);
    }
    any = true;
  }
  for (size_t left = inbox_.size(); left != 0 && !inbox_.empty(); --left) {
    std::unique_ptr<Event> event = std::move(inbox_.front());
    inbox_.pop_front();
    Deliver(*event);
    any = true;
  }
  return any;
}

void LoopbackTransport::Deliver(Event& event) {
  LoopbackNetwork::Connection* connection = network_.Find(event.connection);
  if (connection == nullptr || connection->ends[event.side].endpoint != this) return;
  Peer* peer = Find(connection->ends[event.side].peer);
  if (peer == nullptr) return;
  switch (event.kind) {
    case Event::Kind::kFrame:
      FrameBegin(*peer, event);
      break;
    case Event::Kind::kChunk:
      FrameChunk(*peer, event);
      break;
    case Event::Kind::kSent:
      handler_->OnSent(peer->id, event.cookie);
      break;
    case Event::Kind::kReset:
      network_.Observe("down", *connection, 1 - event.side, FrameType{}, 0, 0);
      Down(peer->id, event.why);
      break;
    case Event::Kind::kHandshakeTimeout:
      if (peer->state != Peer::State::kUp) Down(peer->id, absl::DeadlineExceededError("handshake deadline"));
      break;
    case Event::Kind::kPullHalf:
      break;
    case Event::Kind::kPullEnd:
      PullEnd(*peer, event);
      break;
  }
}

void LoopbackTransport::FrameBegin(Peer& peer, Event& event) {
  const LoopbackNetwork::Frame& frame = *event.frame;
  const ByteView wire(frame.wire);
  absl::StatusOr<FrameHeader> header = DecodeFrameHeader(wire.subspan(0, kFrameHeaderBytes));
  const ByteView body = wire.subspan(kFrameHeaderBytes);
  if (header.ok() &&
      (header->body_bytes != body.size() || Crc32c(body.data(), body.size()) != header->body_crc)) {
    header = absl::DataLossError("frame body does not have its crc");
  }
  if (!header.ok()) {
    network_.Count("bad_frames");
    Down(peer.id, header.status());
    return;
  }
  network_.Observe("frame", *network_.Find(peer.connection), 1 - peer.side, header->type, header->request_id,
                   body.size() + header->payload_bytes);
  if (peer.state != Peer::State::kUp) {
    Handshake(peer, *header, body);
    return;
  }
  const bool cancelled = peer.cancelled.erase(header->request_id) != 0;
  if (header->payload_bytes == 0) {
    if (!cancelled) handler_->OnFrame(peer.id, {*header, body, {}});
    return;
  }
  Peer::Incoming& incoming = peer.incoming;
  incoming.active = true;
  incoming.dropped = cancelled;
  incoming.header = *header;
  incoming.plan.Clear();
  incoming.piece = incoming.piece_done = 0;
  incoming.crcs.clear();
  if (cancelled) return;
  const PeerId id = peer.id;
  PayloadPlan plan;
  const absl::Status accepted = handler_->OnPayload(id, *header, body, plan);
  Peer* still = Find(id);  // The handler may have cut the peer off.
  if (still == nullptr) return;
  if (!accepted.ok()) {
    still->incoming.dropped = true;
    return;
  }
  const absl::Status fits = CheckPlan(plan, header->payload_bytes);
  if (!fits.ok()) {
    Down(id, fits);
    return;
  }
  still->incoming.crcs.assign(plan.pieces.size(), 0);
  still->incoming.plan = std::move(plan);
}

void LoopbackTransport::FrameChunk(Peer& peer, Event& event) {
  Peer::Incoming& incoming = peer.incoming;
  if (!incoming.active) return;
  const std::byte* data = event.bytes.data();
  size_t left = incoming.dropped ? 0 : event.bytes.size();
  while (left != 0 && incoming.piece < incoming.plan.pieces.size()) {
    const PayloadPlan::Piece& piece = incoming.plan.pieces[incoming.piece];
    if (incoming.piece_done == piece.bytes) {
      ++incoming.piece;
      incoming.piece_done = 0;
      continue;
    }
    size_t take = std::min(left, piece.bytes - incoming.piece_done);
    const std::byte* landed = data;
    if (piece.segment_count != 0) {
      const Segment segment = SegmentAt(incoming.plan, piece, incoming.piece_done, take);
      take = segment.bytes;
      std::memcpy(segment.data, data, take);
      landed = segment.data;
    }
    uint32_t& crc = incoming.crcs[incoming.piece];
    crc = Crc32cExtend(crc, landed, take);
    incoming.piece_done += take;
    data += take;
    left -= take;
  }
  if (event.chunk + 1 != kLoopbackChunks) return;
  incoming.active = false;
  if (incoming.dropped) return;
  // Moved out: the handler may fence the peer, and the spans have to live through the call.
  const std::vector<uint32_t> crcs = std::move(incoming.crcs);
  const FrameHeader header = incoming.header;
  const ByteView body = ByteView(event.frame->wire).subspan(kFrameHeaderBytes);
  handler_->OnFrame(peer.id, {header, body, crcs});
}

void LoopbackTransport::PullEnd(Peer& peer, Event& event) {
  LoopbackNetwork::PullOp& pull = *event.pull;
  if (pull.result.result == PartResult::kOk) {
    size_t at = 0;
    for (const Segment& segment : pull.target) {
      if (segment.bytes == 0) continue;
      std::memcpy(segment.data, pull.staged.data() + at, segment.bytes);
      pull.result.crc = Crc32cExtend(pull.result.crc, segment.data, segment.bytes);
      at += segment.bytes;
    }
  }
  handler_->OnPulled(peer.id, pull.pull_id, pull.result);
}

}  // namespace cistern
