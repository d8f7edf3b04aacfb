#include <algorithm>
#include <new>
#include <utility>

#include "client/core/client_core_impl.h"
#include "client/core/segment_list.h"
#include "core/crc32c.h"

// Storing: offer the keys to their owners, then put what they want. Within one owner the deepest blocks go
// first, so that in its eviction order a parent is always more recent than its children.
namespace cistern {

void ClientCore::Impl::StartStore(Operation& op) {
  op.bound = op.limit;
  op.found = true;
  CutRuns(op.limit, std::max(peers_.map().run_blocks_cap, 1u), op.run_list);
  for (const Run& run : op.run_list) op.runs.push_back({.run = run});
  BuildRound(op);
  for (const RunState& run : op.runs) {
    if (!run.ended) continue;  // No owner is reachable.
    for (uint32_t b = std::max(run.run.first, op.first); b < run.run.first + run.run.count; ++b) {
      RecordPart(op, b - op.first, run.why);
    }
  }
  Advance(op);
  Pump();
}

void ClientCore::Impl::ApplyOffer(Operation& op, Ask& ask) {
  const auto coords = static_cast<uint32_t>(op.coords.size());
  ask.first_put = static_cast<uint32_t>(op.puts.size());
  const auto ask_index = static_cast<uint32_t>(&ask - op.asks.data());
  uint32_t slot = 0;
  for (uint32_t i = ask.first_piece; i < ask.first_piece + ask.pieces; ++i) {
    const Piece& piece = op.pieces[i];
    for (uint32_t b = 0; b < piece.count; ++b) {
      const uint32_t page = piece.first + b - op.first;
      for (uint32_t c = 0; c < coords; ++c, ++slot) {
        PartResult result = ask.failure;
        if (result == PartResult::kOk) result = ask.offer.slots[slot].result;
        if (result == PartResult::kExists) {
          ++op.pages[page].exists_parts;
        } else if (result != PartResult::kOk) {
          RecordPart(op, page, result);
        } else {
          op.puts.push_back({ask_index, page, c, ask.offer.slots[slot].put_id});
        }
      }
    }
  }
  ask.puts_left = static_cast<uint32_t>(op.puts.size()) - ask.first_put;
  // A tail is worth nothing without all its parts: none is sent when one was refused.
  if (op.tail_parts == 0 || op.pages[0].worst == PartResult::kOk) return;
  DropPuts(op, ask, op.pages[0].worst);
}

void ClientCore::Impl::AdvanceStore(Operation& op) {
  PumpAsks(op);
  bool open = op.put_frames_open != 0, wants = false;
  for (uint32_t i = 0; i < op.ask_count; ++i) {
    Ask& ask = op.asks[i];
    if (ask.state == AskState::kAnswered) {
      ask.state = AskState::kDone;
      ApplyOffer(op, ask);
    }
    if (op.ending && ask.puts_left != 0) DropPuts(op, ask, op.end_reason);
    wants |= ask.puts_left != 0;
    open |= ask.state != AskState::kDone || ask.puts_left != 0;
  }
  if (wants && !op.put_queued) {
    put_queue_.push_back(&op);
    op.put_queued = true;
  }
  if (!open && op.put_frames_open == 0) FinishStore(op);
}

// Sends parts of stores, this Poll's share: the stores in turn, and each one's owners in turn. A store that
// has to wait for replies or a chunk is queued again when they come.
bool ClientCore::Impl::ServePuts() {
  bool did = false;
  for (size_t left = put_queue_.size(); left > 0 && put_budget_ != 0; --left) {
    Operation& op = *put_queue_.front();
    put_queue_.erase(put_queue_.begin());
    op.put_queued = false;
    if (op.completed || op.ending || op.kind != OpKind::kStore)
      continue;  // It has ended; perhaps it is another one now.
    did = true;
    bool wants = false;
    const uint32_t first = op.put_turn;
    for (uint32_t k = 0; k < op.ask_count; ++k) {
      const uint32_t i = (first + k) % op.ask_count;
      try {
        while (op.asks[i].puts_left != 0 && put_budget_ != 0 && SendPuts(op, i)) op.put_turn = i + 1;
      } catch (const std::bad_alloc&) {
        Break(op);
        throw;
      }
      wants |= op.asks[i].puts_left != 0;
    }
    if (!wants) {
      MarkDirty(op);  // Perhaps that was all.
    } else if (put_budget_ == 0) {
      put_queue_.push_back(&op);
      op.put_queued = true;
    }
  }
  return did;
}

// How many of an ask's deepest parts go into one frame: as many as fit, one at least. One that takes several
// Polls goes alone.
uint32_t ClientCore::Impl::FrameParts(const Operation& op, const Ask& ask, uint64_t bytes_max) {
  uint32_t count = 0;
  uint64_t bytes = 0;
  while (count < ask.puts_left) {
    const uint64_t part = op.PartBytes(op.puts[ask.first_put + ask.puts_left - count - 1].coord);
    if (count != 0 && (bytes + part > bytes_max || part > kPutBytesPerPoll)) break;
    bytes += part;
    ++count;
    if (part > kPutBytesPerPoll) break;
  }
  return count;
}

// Sends the next PUT frame of an ask, its deepest parts. False: has to wait, for replies, for a chunk, or for
// the next Poll's share.
bool ClientCore::Impl::SendPuts(Operation& op, uint32_t index) {
  Ask& ask = op.asks[index];
  ClientPeer* peer = peers_.Get(ask.set.peer);
  if (peer != nullptr && (peer->serial != ask.set.serial || peer->id != ask.set.connection)) peer = nullptr;
  if (peer == nullptr || peer->state != PeerState::kUp) {
    DropPuts(op, ask, PartResult::kPeerGone);
    return true;
  }
  if (ask.put_bytes_open >= kPutBytesInFlightMax) return false;
  const bool from_window = peer->one_sided && options_.window != nullptr;
  PutFrame frame;
  frame.ask = index;
  frame.count = FrameParts(op, ask, from_window ? kWindowPutBytes : kInlinePutBytes);
  frame.first = ask.first_put + ask.puts_left - frame.count;
  put_request_.parts.clear();
  put_payload_.clear();
  if (!(from_window ? FillFromWindow(op, frame) : FillInline(op, frame))) return false;
  for (const PutRequest::Part& part : put_request_.parts) frame.bytes += part.length;
  body_.clear();
  put_request_.Encode(body_);
  op.put_frames.push_back(frame);
  const Nanos now = clock_.Now();
  Request* request =
      NewRequest(&op, FrameType::kPut, static_cast<uint32_t>(op.put_frames.size()) - 1, *peer, now);
  if (request == nullptr) {
    op.put_frames.pop_back();
    DropPuts(op, ask, PartResult::kBusy);
    return true;
  }
  ask.puts_left -= frame.count;
  ask.put_bytes_open += frame.bytes;
  ++op.put_frames_open;
  request->chunk = std::exchange(ask.chunk, -1);
  request->sent = true;
  request->sent_at = now;
  request->unsent_payload = !from_window;
  OutFrame out;
  out.type = FrameType::kPut;
  out.flags = from_window ? kFlagFromWindow : 0;
  out.request_id = request->id;
  out.body = body_;
  out.payload = put_payload_;
  out.cookie = from_window ? 0 : request->id;
  const absl::Status sent = SendFrame(peer->id, out);
  if (!sent.ok()) {
    Request* still = requests_.Find(out.request_id);
    const bool full = sent.code() == absl::StatusCode::kResourceExhausted;
    if (still != nullptr) {
      still->unsent_payload = false;
      FailRequest(*still, full ? PartResult::kBusy : PartResult::kPeerGone);
    }
  }
  return true;
}

// Checksums the part in part_source_, of `bytes` bytes, and copies it to `to` unless that is null. False:
// there is more than this Poll's share; the next call goes on.
bool ClientCore::Impl::SumPart(Ask& ask, uint64_t bytes, std::byte* to, uint32_t& crc) {
  const bool whole = bytes <= kPutBytesPerPoll;
  uint64_t skip = ask.summed_bytes;
  for (const ConstSegment& s : part_source_) {
    if (skip >= s.bytes) {
      skip -= s.bytes;
      continue;
    }
    const uint64_t take = whole ? s.bytes : std::min(s.bytes - skip, put_budget_);
    const std::byte* from = s.data + skip;
    ask.summed_crc = to == nullptr ? Crc32cExtend(ask.summed_crc, from, take)
                                   : CopyCrc32c(to + ask.summed_bytes, from, take, ask.summed_crc);
    ask.summed_bytes += take;
    put_budget_ -= std::min(put_budget_, take);
    if (skip + take < s.bytes) return false;
    skip = 0;
  }
  crc = ask.summed_crc;
  ask.summed_bytes = ask.summed_crc = 0;
  return true;
}

// False: more than this Poll's share.
bool ClientCore::Impl::FillInline(Operation& op, const PutFrame& frame) {
  for (uint32_t i = frame.first; i < frame.first + frame.count; ++i) {
    const PutPart& put = op.puts[i];
    const uint32_t bytes = op.PartBytes(put.coord);
    part_source_.clear();
    AppendSlice(op.ConstPageSegments(put.page), op.PartAt(put.coord), bytes, part_source_);
    uint32_t crc = 0;
    if (!SumPart(op.asks[frame.ask], bytes, nullptr, crc)) return false;
    put_payload_.insert(put_payload_.end(), part_source_.begin(), part_source_.end());
    put_request_.parts.push_back({put.put_id, 0, bytes, crc});
    counters_.inline_put_bytes += bytes;
  }
  return true;
}

// Parts that lie in the window are named where they are; others are copied into a chunk first. False: no
// chunk is free, or more than this Poll's share. The frame is cut where the chunk is full.
bool ClientCore::Impl::FillFromWindow(Operation& op, PutFrame& frame) {
  Ask& ask = op.asks[frame.ask];
  size_t used = 0;
  for (uint32_t i = frame.first + frame.count; i-- > frame.first;) {
    const PutPart& put = op.puts[i];
    part_source_.clear();
    const uint32_t bytes = op.PartBytes(put.coord);
    AppendSlice(op.ConstPageSegments(put.page), op.PartAt(put.coord), bytes, part_source_);
    PutRequest::Part part{put.put_id, 0, bytes, 0};
    std::optional<uint64_t> at;
    if (part_source_.size() == 1) at = options_.window->OffsetOf(part_source_[0].data, part_source_[0].bytes);
    if (at.has_value()) {
      part.window_offset = *at;
      if (!SumPart(ask, bytes, nullptr, part.crc)) return false;
      counters_.window_put_bytes += part.length;
    } else {
      if (ask.chunk < 0) {
        const std::optional<uint32_t> taken = options_.window->TakeChunk();
        if (taken.has_value()) ask.chunk = static_cast<int32_t>(*taken);
      }
      if (ask.chunk < 0 || used + part.length > kStagingChunkBytes) {
        frame.count = frame.first + frame.count - i - 1;
        frame.first = i + 1;
        break;
      }
      const auto chunk = static_cast<uint32_t>(ask.chunk);
      part.window_offset = options_.window->ChunkOffset(chunk) + used;
      if (!SumPart(ask, bytes, options_.window->ChunkData(chunk) + used, part.crc)) return false;
      used += (part.length + 63) / 64 * 64;
      counters_.staged_put_bytes += part.length;
    }
    put_request_.parts.push_back(part);
  }
  std::reverse(put_request_.parts.begin(),
               put_request_.parts.end());  // Chain order in the frame; the node counts back.
  return frame.count != 0;
}

// What was offered but will not be put: the node gets its slots back.
void ClientCore::Impl::DropPuts(Operation& op, Ask& ask, PartResult why) {
  const uint32_t first = ask.first_put, count = std::exchange(ask.puts_left, 0);
  for (uint32_t i = first; i < first + count; ++i) RecordPart(op, op.puts[i].page, why);
  ask.summed_bytes = ask.summed_crc = 0;
  if (ask.chunk >= 0) {
    options_.window->ReturnChunk(static_cast<uint32_t>(std::exchange(ask.chunk, -1)));
    WakeStores();
  }
  ClientPeer* peer = peers_.ById(ask.set.connection);
  if (peer == nullptr || peer->state != PeerState::kUp || count == 0) return;
  try {
    id_list_.ids.clear();
    for (uint32_t i = first; i < first + count; ++i) id_list_.ids.push_back(op.puts[i].put_id);
    body_.clear();
    id_list_.Encode(body_);
    OutFrame out;
    out.type = FrameType::kAbort;
    out.body = body_;
    out.flush = false;
    transport_.Send(peer->id, out).IgnoreError();
    flush_at_ = std::min(flush_at_, clock_.Now() + kFlushAfter);
  } catch (const std::bad_alloc&) {  // Lost: the node drops the puts after the deadline it was told.
  }
}

void ClientCore::Impl::ApplyPutReply(Operation& op, uint32_t index, absl::Span<const PartResult> results,
                                     PartResult failure) {
  const PutFrame& frame = op.put_frames[index];
  for (uint32_t i = 0; i < frame.count; ++i) {
    const uint32_t page = op.puts[frame.first + i].page;
    const PartResult result = failure != PartResult::kOk ? failure : results[i];
    if (result == PartResult::kOk) op.bytes += op.PartBytes(op.puts[frame.first + i].coord);
    if (result == PartResult::kExists)
      ++op.pages[page].exists_parts;
    else
      RecordPart(op, page, result);
  }
  op.asks[frame.ask].put_bytes_open -= frame.bytes;
  --op.put_frames_open;
}

void ClientCore::Impl::FinishStore(Operation& op) {
  op.results.clear();
  op.results.reserve(op.page_count());
  for (uint32_t page = 0; page < op.page_count(); ++page) {
    const PageState& state = op.pages[page];
    PartResult result = state.worst;
    if (result == PartResult::kOk && state.ok_parts + state.exists_parts != op.coords.size()) {
      result = op.ending ? op.end_reason : PartResult::kInvalid;  // Never OK by default.
    } else if (result == PartResult::kOk && state.ok_parts == 0) {
      result = PartResult::kExists;
    }
    ++counters_.store_pages[static_cast<size_t>(result)];
    op.results.push_back(result);
  }
  counters_.store_bytes += op.bytes;
  Complete(op);
}

// A chunk came back: stores that waited for one go on.
void ClientCore::Impl::WakeStores() {
  for (size_t i = active_.size(); i-- > 0;) {  // The oldest moves first: Pump takes the last.
    if (active_[i]->kind == OpKind::kStore) MarkDirty(*active_[i]);
  }
}

}  // namespace cistern
