#include <algorithm>
#include <new>
#include <utility>

#include "client/core/client_core_impl.h"
#include "core/check.h"
#include "core/error_of.h"

// Requests: made, sent, ended. A request is listed with its operation and with its peer until it ends.
namespace cistern {

Request* ClientCore::Impl::NewRequest(Operation* op, FrameType type, uint32_t index, ClientPeer& peer,
                                      Nanos now) {
  MakeRoom(op->requests);
  MakeRoom(peer.requests);
  Request* request = requests_.Add();
  if (request == nullptr) return nullptr;
  request->type = type;
  request->op = op;
  request->index = index;
  request->peer = peer.slot;
  request->op_pos = static_cast<uint32_t>(op->requests.size());
  op->requests.push_back(request);
  request->peer_pos = static_cast<uint32_t>(peer.requests.size());
  peer.requests.push_back(request);
  peers_.Watch(peer, now);
  return request;
}

namespace {

// Takes element `pos` out by moving the last one there; `member` is where elements keep their position.
void TakeOut(std::vector<Request*>& list, Request* request, uint32_t Request::*member) {
  const uint32_t pos = request->*member;
  CISTERN_CHECK(pos < list.size() && list[pos] == request);
  list[pos] = list.back();
  list[pos]->*member = pos;
  list.pop_back();
}

}  // namespace

void ClientCore::Impl::Unlink(Request* request) {
  if (request->op != nullptr) TakeOut(request->op->requests, request, &Request::op_pos);
  if (ClientPeer* peer = peers_.Get(request->peer); peer != nullptr)
    TakeOut(peer->requests, request, &Request::peer_pos);
  ReturnChunk(*request);
  requests_.Remove(request);
}

void ClientCore::Impl::ReturnChunk(Request& request) {
  if (request.chunk < 0) return;
  options_.window->ReturnChunk(static_cast<uint32_t>(request.chunk));
  request.chunk = -1;
  WakeStores();
}

ClientPeer* ClientCore::Impl::PeerOfSet(const PartSet& set) {
  ClientPeer* peer = peers_.Get(set.peer);
  if (peer == nullptr || peer->serial != set.serial || !peer->listed) return nullptr;
  return peer->state == PeerState::kUp && peer->id == set.connection ? peer : nullptr;
}

void ClientCore::Impl::SendQueued(uint32_t slot) {
  ClientPeer* peer = peers_.Get(slot);
  if (peer == nullptr || peer->state != PeerState::kUp) return;
  // In the order they were made: ids grow.
  for (;;) {
    Request* next = nullptr;
    for (Request* r : peer->requests) {
      if (!r->sent && (next == nullptr || r->id < next->id)) next = r;
    }
    if (next == nullptr) return;
    Transmit(*next);
    if (peer->state != PeerState::kUp) return;
  }
}

void ClientCore::Impl::EncodeAsk(Operation& op, Ask& ask, Request& request, OutFrame& frame) {
  const ClientPeer& peer = *peers_.Get(request.peer);
  ChainRequest& out = chain_request_;
  out.layout = op.chain.layout;
  out.part_bytes = op.chain.part_bytes;
  out.deadline_ms =
      static_cast<uint32_t>(std::max<Nanos>(1, (op.deadline_at - request.sent_at) / kMillisecond));
  out.plan_id = 0;
  out.ttl_ms = 0;
  if (request.type == FrameType::kPlan) {
    out.plan_id = ask.set.plan_id = (plan_id_base_ << 16) + ++plan_sequence_;
    out.ttl_ms = static_cast<uint32_t>(options_.lease_ttl / kMillisecond);
    if (op.kind == OpKind::kFetch && !peer.one_sided) {
      frame.flags |= kFlagInline | kFlagOneShot;
      request.inlined = ask.set.inlined = true;
    }
  }
  ask.set.more = false;
  // Payloads come in requests of their own size already, each answered for itself.
  if (op.kind == OpKind::kFetch && peer.one_sided && op.tail_parts == 0 && op.rounds < kRoundsInPartsMax)
    frame.flags |= kFlagInParts;
  if (op.probe) frame.flags |= kFlagProbe;
  if (op.kind == OpKind::kLookup || op.kind == OpKind::kPlan) frame.flags |= kFlagDetail;
  out.coord_bytes.assign(op.coord_bytes.begin(), op.coord_bytes.end());
  out.tail_parts = op.tail_parts;
  out.junction = op.junction;
  out.retention = request.type == FrameType::kOffer ? op.retention : Retention{};
  out.depth = op.pieces[ask.first_piece].first;
  out.coords.assign(op.coords.begin(), op.coords.end());
  out.runs.clear();
  out.blocks.clear();
  for (uint32_t i = ask.first_piece; i < ask.first_piece + ask.pieces; ++i) {
    const Piece& piece = op.pieces[i];
    const Run& run = op.runs[piece.run].run;
    out.runs.push_back({op.chain.blocks[run.first].hash, piece.first - run.first, piece.count});
    const auto blocks = op.chain.blocks.subspan(piece.first, piece.count);
    out.blocks.insert(out.blocks.end(), blocks.begin(), blocks.end());
  }
  out.Encode(body_);
}

// A transport without memory takes a frame no more than one whose queue is full.
absl::Status ClientCore::Impl::SendFrame(PeerId peer, const OutFrame& frame) {
  try {
    return transport_.Send(peer, frame);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("");
  }
}

// Sends a request whose peer is up. PUT frames are made by core_store.cc, which has their payload at hand.
void ClientCore::Impl::Transmit(Request& request) {
  const ClientPeer& peer = *peers_.Get(request.peer);
  OutFrame frame;
  frame.type = request.type;
  frame.request_id = request.id;
  try {
    EncodeRequest(request, peer.id, frame);
  } catch (const std::bad_alloc&) {  // Nobody would send it later.
    return FailRequest(request, PartResult::kBusy);
  }
  frame.body = body_;
  request.sent = true;
  const uint64_t id = request.id;
  const absl::Status sent = SendFrame(peer.id, frame);
  if (sent.ok()) return;
  if (Request* still = requests_.Find(id); still != nullptr) {
    FailRequest(*still, sent.code() == absl::StatusCode::kResourceExhausted ? PartResult::kBusy
                                                                            : PartResult::kPeerGone);
  }
}

// Into body_.
void ClientCore::Impl::EncodeRequest(Request& request, PeerId connection, OutFrame& frame) {
  Operation& op = *request.op;
  request.sent_at = clock_.Now();
  body_.clear();
  switch (request.type) {
    case FrameType::kLookup:
    case FrameType::kPlan:
    case FrameType::kOffer:
      op.asks[request.index].set.connection = connection;
      EncodeAsk(op, op.asks[request.index], request, frame);
      break;
    case FrameType::kRead: {
      const Ask& ask = op.asks[request.index];
      const PartSet& set = op.plan->sets[op.reads[ask.first_transfer].set];
      read_request_.plan_id = set.plan_id;
      read_request_.deadline_ms =
          static_cast<uint32_t>(std::max<Nanos>(1, (op.deadline_at - request.sent_at) / kMillisecond));
      read_request_.parts.clear();
      for (uint32_t i = 0; i < ask.transfers; ++i)
        read_request_.parts.push_back(op.reads[ask.first_transfer + i].part);
      read_request_.Encode(body_);
      break;
    }
    case FrameType::kRenew: {
      const PartSet& set = op.SetAt(request.index);
      RenewRequest renew;
      renew.plan_id = set.plan_id;
      renew.ttl_ms = static_cast<uint32_t>(options_.lease_ttl / kMillisecond);
      renew.Encode(body_);
      break;
    }
    default:
      body_.insert(body_.end(), op.admin_body.begin(), op.admin_body.end());
      break;
  }
}

// The request ends without an answer; its operation hears why. No byte of it can land any more.
void ClientCore::Impl::FailRequest(Request& request, PartResult why) {
  Operation* op = request.op;
  const FrameType type = request.type;
  const bool pull = request.pull;
  const uint32_t index = request.index;
  Unlink(&request);
  if (op == nullptr) return;
  if (op->ending) why = op->end_reason;  // A fence of its own making is not the peer's fault.
  if (pull) {
    --op->transfers_open;
    RecordPart(*op, op->transfers[index].page, why);
  } else if (type == FrameType::kPut) {
    ApplyPutReply(*op, index, {}, why);
  } else if (type == FrameType::kRenew) {
    op->SetAt(index).renewing = false;
    op->admin_result = why;
  } else if (op->kind == OpKind::kAdmin) {
    op->admin_result = why;
  } else {
    Ask& ask = op->asks[index];
    ask.failure = why;
    ask.state = AskState::kAnswered;
    --op->asks_open;
  }
  MarkDirty(*op);
}

void ClientCore::Impl::FailPeer(uint32_t slot, uint64_t last_request) {
  ClientPeer* peer = peers_.Get(slot);
  if (peer == nullptr) return;
  for (size_t i = peer->requests.size();
       i-- > 0;) {  // The last one moves into the gap, so going down misses none.
    if (peer->requests[i]->id <= last_request) FailRequest(*peer->requests[i], PartResult::kPeerGone);
  }
}

void ClientCore::Impl::GiveUp(Operation& op, PartResult why) {
  while (!op.requests.empty()) GiveUpOne(op, *op.requests.back(), why);
}

// Without memory for it, as where a path cannot.
bool ClientCore::Impl::CancelReply(PeerId peer, uint64_t request_id) {
  try {
    return transport_.Cancel(peer, request_id);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// From the end of its request on nothing throws: nobody else would stop the bytes.
void ClientCore::Impl::GiveUpOne(Operation& op, Request& request, PartResult why) {
  ClientPeer& peer = *peers_.Get(request.peer);
  const uint64_t id = request.id;
  const bool up = peer.state == PeerState::kUp && request.sent;
  if (why == PartResult::kDeadline) peers_.OnDeadline(peer, request.sent ? request.sent_at : 0);
  // What may still write into the caller's pages, or read from them, has to be stopped before the caller gets
  // them back.
  const bool lands = up && !request.pull && (request.inlined || request.type == FrameType::kRead);
  // A read that can be given up alone is: its peer's other calls go on.
  const bool pull_ended = up && request.pull && transport_.CancelPull(peer.id, id);
  const bool must_fence = up && ((request.pull && !pull_ended) || request.unsent_payload);
  if (request.type == FrameType::kPlan && up && !request.inlined) QueueRelease(op.asks[request.index].set);
  if (request.type == FrameType::kPut && up && !must_fence && request.chunk >= 0) {
    // The node may be reading the chunk: it stays taken until the reply or the end of the peer.
    ApplyPutReply(op, request.index, {}, why);
    TakeOut(op.requests, &request, &Request::op_pos);
    request.op = nullptr;
    return;
  }
  const PeerId connection = peer.id;
  const uint32_t slot = peer.slot;
  FailRequest(request, why);
  if (lands) {
    if (CancelReply(connection, id)) {
      ++counters_.cancels;
      return;
    }
  } else if (!must_fence) {
    return;
  }
  peers_.Fence(peer, ErrorOf(absl::StatusCode::kCancelled, "a call ended while its bytes were under way"));
  FailPeer(slot);
}

void ClientCore::Impl::QueueRelease(PartSet& set) {
  const uint64_t plan_id = std::exchange(set.plan_id, 0);
  if (plan_id == 0 || set.connection == 0) return;
  try {
    releases_.push_back({set.connection, plan_id});
  } catch (const std::bad_alloc&) {  // The lease ends by itself.
  }
}

void ClientCore::Impl::FlushReleases() {
  while (!releases_.empty()) {
    const PeerId connection = releases_.back().connection;
    id_list_.ids.clear();
    for (size_t i = releases_.size(); i-- > 0;) {
      if (releases_[i].connection != connection) continue;
      id_list_.ids.push_back(releases_[i].plan_id);
      releases_[i] = releases_.back();
      releases_.pop_back();
    }
    ClientPeer* peer = peers_.ById(connection);
    if (peer == nullptr || peer->state != PeerState::kUp)
      continue;  // The node frees leases with the connection.
    body_.clear();
    id_list_.Encode(body_);
    OutFrame frame;
    frame.type = FrameType::kRelease;
    frame.body = body_;
    frame.flush = false;
    SendFrame(connection, frame).IgnoreError();  // Lost: the lease ends by itself.
    flush_at_ = std::min(flush_at_, clock_.Now() + kFlushAfter);
  }
}

}  // namespace cistern
