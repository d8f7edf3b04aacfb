#include <algorithm>
#include <cstring>
#include <new>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/make_room.h"
#include "transport/ucx/ucx_transport.h"

// Frames on their way out. A connection's messages are given to UCX in order: a frame, then its payload in
// chunks of which a bounded number is in flight.
namespace cistern {

// extra: what a frame of the handshake announces, behind its body. What throws has queued nothing.
void UcxTransport::Queue(UcxPeer& peer, const OutFrame& frame, ByteView extra) {
  MakeRoom(sent_, outgoing_pool_.in_use() + 1);  // To end one takes no memory.
  Outgoing& out = *outgoing_pool_.Take();
  try {
    Fill(out, peer, frame, extra);
    peer.queue.push_back(&out);
  } catch (...) {
    outgoing_pool_.Give(&out);
    throw;
  }
  ++peer.queued_frames;
  peer.queued_bytes += frame.body.size();
}

void UcxTransport::Fill(Outgoing& out, const UcxPeer& peer, const OutFrame& frame, ByteView extra) {
  out.peer = peer.id;
  out.cookie = frame.cookie;
  out.segment = out.segment_at = 0;
  out.frame_posted = false;
  out.in_flight = 0;
  out.body_bytes = frame.body.size();
  out.body.assign(frame.body.begin(), frame.body.end());
  out.payload.clear();
  FrameHeader header;
  header.version = peer.state == State::kUp ? peer.version : kWireVersionMin;
  header.type = frame.type;
  header.flags = frame.flags;
  header.request_id = frame.request_id;
  header.body_bytes = static_cast<uint32_t>(frame.body.size());
  header.body_crc = Crc32c(frame.body.data(), frame.body.size());
  for (const ConstSegment& segment : frame.payload) {
    if (segment.bytes == 0) continue;
    out.payload.push_back(segment);
    header.payload_bytes += segment.bytes;
  }
  out.body.insert(out.body.end(), extra.begin(), extra.end());
  EncodeFrameHeader(header, out.header.data() + kAmHeaderBytes);
}

void UcxTransport::WantPost(UcxPeer& peer) {
  if (peer.unposted) return;
  peer.unposted = true;
  unposted_.push_back(peer.id);
}

bool UcxTransport::PostWaiting() {
  if (unposted_.empty()) return false;
  const size_t count = unposted_.size();
  for (size_t i = 0; i < count; ++i) {
    UcxPeer* peer = Find(unposted_[i]);
    if (peer == nullptr) continue;
    peer->unposted = false;
    Post(*peer);
  }
  unposted_.erase(unposted_.begin(), unposted_.begin() + static_cast<ptrdiff_t>(count));
  return true;
}

void UcxTransport::Post(UcxPeer& peer) {
  if (peer.ep == nullptr || peer.doomed || peer.state == State::kDown) return;
  try {
    while (!peer.queue.empty()) {
      Outgoing& out = *peer.queue.front();
      if (!out.frame_posted && !PostFrame(peer, out)) return;
      while (!out.IsPosted()) {
        if (peer.chunks_in_flight >= kChunksInFlightMax) return;  // Goes on when one has ended.
        if (!PostChunk(peer, out)) return;
      }
      peer.queue.pop_front();
      if (out.in_flight == 0) EndOutgoing(&out);
    }
  } catch (const std::bad_alloc&) {  // What is queued goes when there is memory for it.
    WantPost(peer);
  }
}

bool UcxTransport::PostFrame(UcxPeer& peer, Outgoing& out) {
  EncodeAmHeader({AmKind::kFrame, peer.send_sequence}, out.header.data());
  SendOp* op = send_pool_.Take();
  op->transport = this;
  op->outgoing = &out;
  op->chunk = false;
  out.frame_posted = true;
  return Give(peer, op, out.header.data(), out.header.size(), out.body.data(), out.body.size());
}

bool UcxTransport::PostChunk(UcxPeer& peer, Outgoing& out) {
  SendOp* op = send_pool_.Take();
  op->transport = this;
  op->outgoing = &out;
  op->chunk = true;
  EncodeAmHeader({AmKind::kChunk, peer.send_sequence}, op->header.data());
  const ConstSegment& segment = out.payload[out.segment];
  const std::byte* data = segment.data + out.segment_at;
  const size_t bytes = std::min(kChunkBytes, segment.bytes - out.segment_at);
  out.segment_at += bytes;
  if (out.segment_at == segment.bytes) {
    ++out.segment;
    out.segment_at = 0;
  }
  ++peer.chunks_in_flight;
  return Give(peer, op, op->header.data(), op->header.size(), data, bytes);
}

// Eagerly, always: with a rendezvous UCX would answer messages of a peer by itself, and 1.13 ends the process
// when that peer is gone. False: the endpoint took nothing; the peer is doomed.
bool UcxTransport::Give(UcxPeer& peer, SendOp* op, const void* header, size_t header_bytes, const void* data,
                        size_t bytes) {
  ++peer.send_sequence;
  ++peer.sends_in_flight;
  ++op->outgoing->in_flight;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = OnSendDone;
  params.user_data = op;
  ucs_status_ptr_t request = ucp_am_send_nbx(peer.ep, kAmId, header, header_bytes, data, bytes, &params);
  if (UCS_PTR_IS_PTR(request)) return true;
  const ucs_status_t status = UCS_PTR_RAW_STATUS(request);
  SendEnded(op, status);
  if (status == UCS_OK) return true;
  Doom(peer, UcxError(status, "sending"));
  return false;
}

void UcxTransport::OnSendDone(void* request, ucs_status_t status, void* op) noexcept {
  auto* ended = static_cast<SendOp*>(op);
  ucp_request_free(request);
  ended->transport->SendEnded(ended, status);
}

void UcxTransport::SendEnded(SendOp* op, ucs_status_t status) {
  Outgoing* out = op->outgoing;
  const bool chunk = op->chunk;
  send_pool_.Give(op);
  --out->in_flight;
  UcxPeer* peer = Find(out->peer);
  if (peer != nullptr) {
    --peer->sends_in_flight;
    if (chunk) --peer->chunks_in_flight;
    if (status != UCS_OK && peer->state != State::kDown) Doom(*peer, UcxError(status, "sending"));
    if (!peer->queue.empty()) WantPost(*peer);
  }
  const bool queued =
      peer != nullptr && std::find(peer->queue.begin(), peer->queue.end(), out) != peer->queue.end();
  if (out->in_flight == 0 && !queued) EndOutgoing(out);
}

void UcxTransport::EndOutgoing(Outgoing* out) {
  if (UcxPeer* peer = Find(out->peer); peer != nullptr) {
    --peer->queued_frames;
    peer->queued_bytes -= out->body_bytes;
    if (out->cookie != 0 && peer->state == State::kUp && !peer->doomed) {
      sent_.emplace_back(peer->id, out->cookie);
      Wake();
    }
  }
  out->payload.clear();
  outgoing_pool_.Give(out);
}

}  // namespace cistern
