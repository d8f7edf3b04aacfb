#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "transport/ucx/ucx_transport.h"

// Frames on their way in. UCX keeps no order between messages of different size; here they are put in theirs.
// A payload's bytes are copied out of UCX's receive buffer into their place in one pass with their checksum,
// when they come in turn; what comes early is kept.
namespace cistern {
namespace {

constexpr int kMessagesPerPoll = 256;  // Of one peer.

absl::Status CheckPlan(const PayloadPlan& plan, uint64_t payload_bytes) {
  uint64_t total = 0;
  for (const PayloadPlan::Piece& piece : plan.pieces) {
    total += piece.bytes;
    if (piece.segment_count == 0) continue;
    if (piece.first_segment + size_t{piece.segment_count} > plan.segments.size())
      return absl::InternalError("payload plan names segments it does not have");
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < piece.segment_count; ++i) bytes += plan.segments[piece.first_segment + i].bytes;
    if (bytes != piece.bytes) return absl::InternalError("segments of a piece do not add up to its bytes");
  }
  if (total == payload_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("payload of ", payload_bytes, " bytes where ", total, " were expected"));
}

}  // namespace

ucs_status_t UcxTransport::OnMessage(void* transport, const void* header, size_t header_bytes, void* data,
                                     size_t bytes, const ucp_am_recv_param_t* param) noexcept {
  return static_cast<UcxTransport*>(transport)->Arrived(header, header_bytes, data, bytes, param);
}

// Only enqueues, or lands bytes that their plan already has a place for; the handler hears of nothing here.
// The message is UCX's again when this returns.
ucs_status_t UcxTransport::Arrived(const void* header, size_t header_bytes, const void* data, size_t bytes,
                                   const ucp_am_recv_param_t* param) {
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return UCS_OK;
  const auto found = by_endpoint_.find(param->reply_ep);
  if (found == by_endpoint_.end()) return UCS_OK;
  UcxPeer& peer = *found->second;
  if (peer.doomed || peer.state == State::kDown) return UCS_OK;
  const auto bad = [&](absl::Status why) {
    ++counters_.bad_frames;
    Doom(peer, std::move(why));
    return UCS_OK;
  };
  const auto view = absl::MakeConstSpan(static_cast<const std::byte*>(header), header_bytes);
  const absl::StatusOr<AmHeader> am = DecodeAmHeader(view);
  if (!am.ok()) return bad(am.status());
  const bool is_frame = am->kind == AmKind::kFrame;
  if (header_bytes != kAmHeaderBytes + (is_frame ? kFrameHeaderBytes : 0))
    return bad(absl::InvalidArgumentError("active message: header of another length"));
  // Rendezvous would have UCX answer the sender by itself, and 1.13 ends the process when that sender is
  // gone.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
    return bad(absl::InvalidArgumentError("active message: sent by rendezvous"));
  const size_t bytes_max = is_frame ? kBodyBytesMax + kAnnouncementBytesMax : kChunkBytes;
  const uint64_t at = am->sequence - peer.receive_sequence;  // Wraps to something large for what is past.
  if (bytes > bytes_max || at >= kInboundItemsMax || peer.inbound_bytes > kInboundBytesMax ||
      (at < peer.inbound.size() && peer.inbound[at] != nullptr)) {
    return bad(absl::InvalidArgumentError("active message: too long, twice, or too many at once"));
  }
  const auto* from = static_cast<const std::byte*>(data);
  if (!is_frame && at == 0 && peer.incoming.active && !peer.incoming.IsWhole()) {
    if (const absl::Status taken = TakeChunk(peer, from, bytes); !taken.ok()) return bad(taken);
    if (!peer.inbound.empty()) peer.inbound.pop_front();  // Its empty place.
    ++peer.receive_sequence;
    if (peer.incoming.IsWhole() || (!peer.inbound.empty() && peer.inbound.front() != nullptr))
      WantDeliver(peer);
    return UCS_OK;
  }
  if (at >= peer.inbound.size()) peer.inbound.resize(at + 1, nullptr);
  Inbound& item = *inbound_pool_.Take();
  peer.inbound[at] = &item;
  item.kind = am->kind;
  if (is_frame) std::memcpy(item.frame.data(), view.data() + kAmHeaderBytes, kFrameHeaderBytes);
  item.data.assign(from, from + bytes);
  peer.inbound_bytes += bytes;
  if (at == 0) WantDeliver(peer);
  return UCS_OK;
}

void UcxTransport::WantDeliver(UcxPeer& peer) {
  if (peer.readable) return;
  peer.readable = true;
  readable_.push_back(peer.id);
}

bool UcxTransport::DeliverAll() {
  if (readable_.empty()) return false;
  const std::vector<PeerId> ids = std::move(readable_);
  readable_.clear();
  bool moved = false;
  for (const PeerId id : ids) {
    UcxPeer* peer = Find(id);
    if (peer == nullptr) continue;
    peer->readable = false;
    moved |= Deliver(*peer);
  }
  return moved;
}

bool UcxTransport::Deliver(UcxPeer& peer) {
  bool moved = false;
  for (int i = 0; i < kMessagesPerPoll; ++i) {
    if (peer.state == State::kDown || peer.doomed) return moved;
    if (peer.incoming.active && peer.incoming.IsWhole()) {
      moved = true;
      EndPayload(peer);
      continue;
    }
    if (peer.inbound.empty() || peer.inbound.front() == nullptr) return moved;
    moved = true;
    Inbound* item = peer.inbound.front();
    peer.inbound.pop_front();
    ++peer.receive_sequence;
    peer.inbound_bytes -= item->data.size();
    if (item->kind == AmKind::kFrame) {
      DeliverFrame(peer, *item);
    } else if (const absl::Status taken = TakeChunk(peer, item->data.data(), item->data.size());
               !taken.ok()) {
      CloseBad(peer, taken);
    }
    inbound_pool_.Give(item);
  }
  WantDeliver(peer);
  return moved;
}

void UcxTransport::DeliverFrame(UcxPeer& peer, Inbound& item) {
  const absl::StatusOr<FrameHeader> header = DecodeFrameHeader(item.frame);
  if (!header.ok()) return CloseBad(peer, header.status());
  const bool may_announce = peer.state != State::kUp;
  const bool fits =
      may_announce ? item.data.size() >= header->body_bytes : item.data.size() == header->body_bytes;
  if (!fits || peer.incoming.active)
    return CloseBad(peer, absl::InvalidArgumentError("frame does not have the length of its header"));
  const ByteView body = ByteView(item.data).subspan(0, header->body_bytes);
  if (Crc32c(body.data(), body.size()) != header->body_crc)
    return CloseBad(peer, absl::DataLossError("frame body does not have its crc"));
  switch (peer.state) {
    case State::kAwaitHello:
      return OnHelloFrame(peer, *header, body, ByteView(item.data).subspan(header->body_bytes));
    case State::kAwaitAck:
      return OnAckFrame(peer, *header, body, ByteView(item.data).subspan(header->body_bytes));
    case State::kUp:
      return HandleFrame(peer, *header, body);
    case State::kRefusing:
    case State::kDown:
      return;
  }
}

void UcxTransport::HandleFrame(UcxPeer& peer, const FrameHeader& header, ByteView body) {
  if (header.type == FrameType::kHello || header.type == FrameType::kHelloAck ||
      (header.type == FrameType::kRefused && peer.accepted)) {
    return CloseBad(peer, absl::InvalidArgumentError("a frame of the handshake after it"));
  }
  if (header.version != peer.version)
    return CloseBad(peer, absl::InvalidArgumentError("not the version agreed on"));
  if (header.payload_bytes > 0) return BeginPayload(peer, header, body);
  if (!peer.cancelled.empty() && peer.cancelled.erase(header.request_id) > 0) return;
  if (header.type ==
      FrameType::kRefused) {  // The node takes its word back, for instance when a ticket ended.
    Refused refused;
    const absl::Status decoded = refused.Decode(body);
    return Down(peer, decoded.ok() ? absl::Status(refused.code, refused.message) : decoded);
  }
  handler_->OnFrame(peer.id, InFrame{header, body, {}});
}

void UcxTransport::BeginPayload(UcxPeer& peer, const FrameHeader& header, ByteView body) {
  auto& incoming = peer.incoming;
  incoming.active = true;
  incoming.header = header;
  incoming.body.assign(body.begin(), body.end());
  incoming.plan.Clear();
  incoming.received = 0;
  incoming.piece = incoming.piece_done = incoming.segment = incoming.segment_done = 0;
  incoming.crcs.clear();
  incoming.dropped = !peer.cancelled.empty() && peer.cancelled.erase(header.request_id) > 0;
  if (incoming.dropped) return;
  absl::Status status = handler_->OnPayload(peer.id, header, incoming.body, incoming.plan);
  if (peer.state == State::kDown) return;
  if (!status.ok() || incoming.dropped) {  // The callback may have cancelled it.
    incoming.dropped = true;
    return;
  }
  status = CheckPlan(incoming.plan, header.payload_bytes);
  if (!status.ok()) return CloseBad(peer, status);
  incoming.crcs.assign(incoming.plan.pieces.size(), 0);
}

absl::Status UcxTransport::TakeChunk(UcxPeer& peer, const std::byte* data, size_t bytes) {
  auto& incoming = peer.incoming;
  if (!incoming.active || bytes == 0 || bytes > incoming.header.payload_bytes - incoming.received)
    return absl::InvalidArgumentError("payload that no frame announced");
  incoming.received += bytes;
  if (!incoming.dropped) Land(peer, data, bytes);
  return absl::OkStatus();
}

void UcxTransport::Land(UcxPeer& peer, const std::byte* data, size_t bytes) {
  auto& in = peer.incoming;
  while (bytes > 0) {
    const PayloadPlan::Piece& piece = in.plan.pieces[in.piece];
    if (in.piece_done == piece.bytes) {
      ++in.piece;
      in.piece_done = in.segment = in.segment_done = 0;
      continue;
    }
    size_t take = std::min(bytes, piece.bytes - in.piece_done);
    uint32_t& crc = in.crcs[in.piece];
    if (piece.segment_count == 0) {
      crc = Crc32cExtend(crc, data, take);
    } else {
      const Segment& segment = in.plan.segments[piece.first_segment + in.segment];
      take = std::min(take, segment.bytes - in.segment_done);
      if (take > 0) crc = CopyCrc32c(segment.data + in.segment_done, data, take, crc);
      in.segment_done += take;
      if (in.segment_done == segment.bytes) {
        ++in.segment;
        in.segment_done = 0;
      }
    }
    in.piece_done += take;
    data += take;
    bytes -= take;
  }
}

void UcxTransport::EndPayload(UcxPeer& peer) {
  auto& incoming = peer.incoming;
  incoming.active = false;
  if (incoming.dropped) return;
  // Moved out: the handler may fence the peer or be sent the next frame, and the views have to live.
  const std::vector<uint32_t> crcs = std::move(incoming.crcs);
  const Bytes body = std::move(incoming.body);
  const FrameHeader header = incoming.header;
  handler_->OnFrame(peer.id, InFrame{header, body, crcs});
}

}  // namespace cistern
