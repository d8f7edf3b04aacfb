#include <algorithm>
#include <new>
#include <string>

#include "client/core/client_core_impl.h"
#include "client/core/segment_list.h"

// What the transport tells. Everything from a peer is checked here; a reply that does not fit its request
// ends it.
namespace cistern {
namespace {

PartResult FromCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return PartResult::kDenied;
    case absl::StatusCode::kResourceExhausted:
      return PartResult::kBusy;
    case absl::StatusCode::kInvalidArgument:
      return PartResult::kInvalid;
    case absl::StatusCode::kUnavailable:
      return PartResult::kPeerGone;
    case absl::StatusCode::kDeadlineExceeded:
      return PartResult::kDeadline;
    case absl::StatusCode::kFailedPrecondition:
      return PartResult::kStale;
    case absl::StatusCode::kNotFound:
      return PartResult::kMiss;
    default:
      return PartResult::kCorrupt;
  }
}

FrameType ReplyOf(FrameType request) {
  return static_cast<FrameType>(static_cast<uint8_t>(request) +
                                1);  // Every request's reply follows it in FrameType.
}

}  // namespace

absl::Status ClientCore::Impl::OnHello(PeerId, const Hello&, HelloAck&, std::vector<const MemoryRegion*>&) {
  return absl::UnimplementedError("a client accepts no connections");
}
void ClientCore::Impl::OnPeerUp(PeerId peer, const HelloAck& ack) { peers_.OnUp(peer, ack); }
void ClientCore::Impl::OnPeerDown(PeerId peer, const absl::Status& why) { peers_.OnDown(peer, why); }

void ClientCore::Impl::OnSent(PeerId, uint64_t cookie) {
  Request* request = requests_.Find(cookie);
  if (request != nullptr) request->unsent_payload = false;
}

void ClientCore::Impl::OnPulled(PeerId peer_id, uint64_t pull_id, const PullResult& result) {
  const Nanos now = Tick();
  if (ClientPeer* peer = peers_.ById(peer_id); peer != nullptr) peer->silent_since = now;
  Request* request = requests_.Find(pull_id);
  if (request == nullptr || !request->pull) return;
  Operation& op = *request->op;
  const Transfer& transfer = op.transfers[request->index];
  const PartSet& set = op.SetAt(transfer.set);
  const PartResult part = VerifyPulled(Expect(op, transfer.page, transfer.coord),
                                       set.reply.parts[transfer.part], result, now, set.lease_end);
  Unlink(request);
  --op.transfers_open;
  RecordPart(op, transfer.page, part);
  MarkDirty(op);
  HandOn(op, transfer.page, transfer.coord, op.SetAt(transfer.set).reply.parts[transfer.part], part);
}

// Fits the descriptors what was asked? Their number, the plan and the incarnation; each part is judged by
// verify.h.
PartResult ClientCore::Impl::CheckPlanReply(const Operation& op, const Ask& ask,
                                            const ClientPeer& peer) const {
  const PlanReply& reply = ask.set.reply;
  if (reply.incarnation != peer.incarnation) return PartResult::kStale;
  if (reply.hit_blocks > ask.blocks || reply.plan_id != ask.set.plan_id ||
      reply.parts.size() != uint64_t{reply.hit_blocks} * op.coords.size()) {
    return PartResult::kCorrupt;
  }
  return PartResult::kOk;
}

// Decodes a reply into its place. Not kOk: the request is to be failed with that.
PartResult ClientCore::Impl::DecodeReply(Operation& op, Request& request, const ClientPeer& peer,
                                         const FrameHeader& header, ByteView body) {
  const FrameType type = header.type;
  if (type == FrameType::kError) {
    ErrorBody error;
    if (!error.Decode(body).ok()) return PartResult::kCorrupt;
    if (op.kind == OpKind::kAdmin) op.status = absl::Status(error.code, error.message);
    const PartResult result = FromCode(error.code);
    return result == PartResult::kOk ? PartResult::kCorrupt : result;
  }
  if (type != ReplyOf(request.type)) return PartResult::kCorrupt;
  switch (type) {
    case FrameType::kLookupReply: {
      Ask& ask = op.asks[request.index];
      if (!lookup_reply_.Decode(body).ok() || lookup_reply_.hit_blocks > ask.blocks)
        return PartResult::kCorrupt;
      if (lookup_reply_.incarnation != peer.incarnation) return PartResult::kStale;
      ask.set.reply.hit_blocks = lookup_reply_.hit_blocks;
      ask.set.reply.stopped_by = lookup_reply_.stopped_by;
      std::swap(ask.set.reply.detail, lookup_reply_.detail);
      return PartResult::kOk;
    }
    case FrameType::kPlanReply: {
      Ask& ask = op.asks[request.index];
      if (!ask.set.reply.Decode(body).ok()) return PartResult::kCorrupt;
      ask.set.ttl = std::min<Nanos>(Nanos{ask.set.reply.ttl_ms} * kMillisecond, kLeaseTtlMax);
      ask.set.lease_end = request.sent_at + ask.set.ttl;
      // Without a block of progress it is a miss like any other: no node can keep a call going round.
      ask.set.more = (header.flags & kFlagInParts) != 0 && ask.set.reply.hit_blocks > 0;
      return CheckPlanReply(op, ask, peer);
    }
    case FrameType::kReadReply: {
      Ask& ask = op.asks[request.index];
      if (!ask.set.reply.Decode(body).ok() || ask.set.reply.parts.size() != ask.transfers)
        return PartResult::kCorrupt;
      return ask.set.reply.incarnation == peer.incarnation ? PartResult::kOk : PartResult::kStale;
    }
    case FrameType::kOfferReply: {
      Ask& ask = op.asks[request.index];
      const bool fits =
          ask.offer.Decode(body).ok() && ask.offer.slots.size() == uint64_t{ask.blocks} * op.coords.size();
      return fits ? PartResult::kOk : PartResult::kCorrupt;
    }
    case FrameType::kPutReply: {
      const bool fits =
          put_reply_.Decode(body).ok() && put_reply_.results.size() == op.put_frames[request.index].count;
      return fits ? PartResult::kOk : PartResult::kCorrupt;
    }
    case FrameType::kStatsReply:
    case FrameType::kDropReply:
    case FrameType::kQuotaReply:
    case FrameType::kAgreeReply:
      op.admin_body.assign(body.begin(), body.end());
      return PartResult::kOk;
    default:
      return PartResult::kCorrupt;
  }
}

absl::Status ClientCore::Impl::OnPayload(PeerId peer_id, const FrameHeader& header, ByteView body,
                                         PayloadPlan& plan) {
  ClientPeer* peer = peers_.ById(peer_id);
  if (peer == nullptr || peer->id != peer_id) return absl::UnavailableError("no such peer");
  peers_.Heard(*peer);
  try {
    return TakePayload(*peer, header, body, plan);
  } catch (const std::bad_alloc&) {
    LoseReply(header.request_id);
    return absl::ResourceExhaustedError("");
  }
}

// An answer that came and could not be taken, for want of memory: it does not come again.
void ClientCore::Impl::LoseReply(uint64_t request_id) {
  Request* request = requests_.Find(request_id);
  if (request != nullptr) FailRequest(*request, PartResult::kBusy);
}

absl::Status ClientCore::Impl::TakePayload(ClientPeer& peer, const FrameHeader& header, ByteView body,
                                           PayloadPlan& plan) {
  Request* request = requests_.Find(header.request_id);
  if (request == nullptr || request->op == nullptr || request->peer != peer.slot || request->pull) {
    ++counters_.late_replies;
    return absl::CancelledError("nobody waits for this payload");
  }
  Operation& op = *request->op;
  const bool wanted = request->inlined || request->type == FrameType::kRead;
  const PartResult decoded = wanted ? DecodeReply(op, *request, peer, header, body) : PartResult::kCorrupt;
  if (decoded != PartResult::kOk) {
    ++counters_.bad_frames;
    FailRequest(*request, decoded);  // The payload is drained, and no frame follows.
    return absl::InvalidArgumentError("payload does not fit its request");
  }
  request->receiving = true;
  Ask& ask = op.asks[request->index];
  PartWalk walk(op, ask, /*read=*/!request->inlined);
  for (const PartDescriptor& part : ask.set.reply.parts) {
    walk.Next();
    if (part.result != PartResult::kOk) continue;  // Sends no bytes.
    PayloadPlan::Piece piece{part.length, static_cast<uint32_t>(plan.segments.size()), 0};
    if (VerifyDescriptor(Expect(op, walk.page, walk.coord), part) == PartResult::kOk) {
      AppendSlice(op.PageSegments(walk.page), op.PartAt(walk.coord), part.length, plan.segments);
      piece.segment_count = static_cast<uint32_t>(plan.segments.size()) - piece.first_segment;
    }
    plan.pieces.push_back(piece);
  }
  return absl::OkStatus();
}

// The bytes of a reply are in their pages: judge each part.
void ClientCore::Impl::LandPieces(Operation& op, Request& request, absl::Span<const uint32_t> piece_crcs) {
  Ask& ask = op.asks[request.index];
  PartWalk walk(op, ask, /*read=*/!request.inlined);
  size_t next_crc = 0;
  for (const PartDescriptor& part : ask.set.reply.parts) {
    walk.Next();
    PartResult result = part.result;
    if (result == PartResult::kOk) {
      result = next_crc < piece_crcs.size()
                   ? VerifyInline(Expect(op, walk.page, walk.coord), part, piece_crcs[next_crc])
                   : PartResult::kCorrupt;  // Announced, but no bytes came.
      ++next_crc;
    }
    RecordPart(op, walk.page, result);
    HandOn(op, walk.page, walk.coord, part, result);
  }
}

void ClientCore::Impl::OnRenewReply(Request& request, ByteView body) {
  PartSet& set = request.op->SetAt(request.index);
  RenewReply reply;
  set.renewing = false;
  if (!reply.Decode(body).ok() || reply.result != PartResult::kOk) {
    request.op->admin_result = PartResult::kLeaseExpired;  // Of a recheck; else the lease ends when it ends.
    return;
  }
  set.lease_end = std::max(
      set.lease_end, request.sent_at + std::min<Nanos>(Nanos{reply.ttl_ms} * kMillisecond, kLeaseTtlMax));
}

void ClientCore::Impl::OnFrame(PeerId peer_id, const InFrame& frame) {
  ClientPeer* peer = peers_.ById(peer_id);
  if (peer == nullptr || peer->id != peer_id) return;
  peers_.Heard(*peer);
  if (frame.header.type == FrameType::kPong) return;
  try {
    TakeFrame(*peer, frame);
  } catch (const std::bad_alloc&) {
    LoseReply(frame.header.request_id);
  }
}

void ClientCore::Impl::TakeFrame(ClientPeer& peer, const InFrame& frame) {
  Request* request = requests_.Find(frame.header.request_id);
  if (request == nullptr || request->peer != peer.slot || request->pull) {
    ++counters_.late_replies;
    return;
  }
  if (request->op == nullptr) {  // Given up; its chunk is free now.
    ++counters_.late_replies;
    Unlink(request);
    return;
  }
  Operation& op = *request->op;
  if (request->type == FrameType::kRenew) {
    if (frame.header.type == FrameType::kRenewReply)
      OnRenewReply(*request, frame.body);
    else
      op.SetAt(request->index).renewing = false;
    Unlink(request);
    MarkDirty(op);
    return;
  }
  if (!request->receiving) {
    const PartResult decoded = DecodeReply(op, *request, peer, frame.header, frame.body);
    if (decoded != PartResult::kOk) {
      if (frame.header.type != FrameType::kError) ++counters_.bad_frames;
      FailRequest(*request, decoded);
      return;
    }
  }
  const uint32_t index = request->index;
  if (request->type == FrameType::kLookup || request->type == FrameType::kPlan) {
    peer.takes_notes |= op.asks[index].set.reply.detail.present;
  }
  if (request->type == FrameType::kPut) {
    Unlink(request);
    ApplyPutReply(op, index, put_reply_.results, PartResult::kOk);
  } else if (op.kind == OpKind::kAdmin) {
    Unlink(request);
  } else {
    if (request->inlined || request->type == FrameType::kRead) LandPieces(op, *request, frame.piece_crcs);
    Unlink(request);
    op.asks[index].state = AskState::kAnswered;
    --op.asks_open;
  }
  MarkDirty(op);
}

}  // namespace cistern
