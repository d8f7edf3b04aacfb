// PUT frames whose bytes the shard gets itself, out of the writer's window.
#include <algorithm>

#include "cache_node/node_shard.h"
#include "core/crc32c.h"

namespace cistern {
namespace {

// So much more is asked for in a turn where others move the bytes.
constexpr uint32_t kPullsAheadOfOthers = 8;

// The state of a queued pull names its frame and its place there.
uint64_t PullName(uint32_t frame, uint32_t part) { return uint64_t{frame} << 32 | part; }

}  // namespace

void NodeShard::PutFromWindow(PeerId peer, const InFrame& frame) {
  const PeerPath* path = transport_.Path(peer);
  if (path == nullptr || !path->one_sided) {
    ++counters_.bad_frames;
    return ReplyError(peer, frame.header.request_id,
                      absl::InvalidArgumentError("this path has no put window"));
  }
  uint32_t index = 0;
  if (!free_put_frames_.empty()) {
    index = free_put_frames_.back();
    free_put_frames_.pop_back();
  } else if (put_frames_.size() < kPutFramesMax) {
    index = static_cast<uint32_t>(put_frames_.size());
    put_frames_.emplace_back();
  } else {
    return ReplyError(peer, frame.header.request_id,
                      absl::ResourceExhaustedError("kPutFramesMax puts are under way"));
  }
  PutFrame& put_frame = put_frames_[index];
  if (const absl::Status decoded = put_frame.request.Decode(frame.body); !decoded.ok()) {
    free_put_frames_.push_back(index);
    ++counters_.bad_frames;
    return ReplyError(peer, frame.header.request_id, decoded);
  }
  put_frame.peer = peer;
  put_frame.request_id = frame.header.request_id;
  put_frame.next = put_frame.waiting = 0;
  put_frame.next_at = put_frame.piece_bytes = put_frame.crc = 0;
  put_frame.live = true;
  put_frame.results.assign(put_frame.request.parts.size(), PartResult::kInvalid);
  for (uint32_t i = 0; i < put_frame.request.parts.size(); ++i) {
    uint32_t put = 0;
    put_frame.results[i] = CheckPut(peer, put_frame.request.parts[i], PutState::kOffered, put);
    if (put_frame.results[i] == PartResult::kOk) puts_.SetState(put, PutState::kQueued, PullName(index, i));
  }
  pull_queue_.push_back(index);  // Poll goes on, when all frames that came with it are answered.
}

bool NodeShard::AdvancePulls() {
  if (pull_queue_.empty() || advancing_) return false;
  advancing_ = true;
  while (!pull_queue_.empty() && pull_budget_ > 0) {
    const uint32_t index = pull_queue_.front();
    const PeerId peer = put_frames_[index].peer;
    const auto parts = static_cast<uint32_t>(put_frames_[index].request.parts.size());
    while (put_frames_[index].live && put_frames_[index].next < parts &&
           put_frames_[index].piece_bytes == 0 && pull_budget_ > 0) {
      pull_budget_ -= std::min<uint64_t>(StartPull(peer, index, pull_budget_), pull_budget_);
    }
    if (!put_frames_[index].live) continue;  // The peer went; its frames have left the queue.
    if (put_frames_[index].next < parts) break;
    pull_queue_.erase(pull_queue_.begin());
    if (put_frames_[index].waiting == 0) FinishFrame(index);
  }
  advancing_ = false;
  return true;
}

// Asks for the frame's next part. Where this thread copies the bytes itself, only for the next piece of it.
uint32_t NodeShard::StartPull(PeerId peer, uint32_t index, uint64_t budget) {
  PutFrame& frame = put_frames_[index];
  const uint32_t i = frame.next;
  const PutRequest::Part& part = frame.request.parts[i];
  const PeerPath* path = transport_.Path(peer);
  const bool in_own_time = path != nullptr && path->kind == PathKind::kMap;
  const bool in_pieces = in_own_time && part.length - frame.next_at > budget;
  uint32_t put = 0;
  if (frame.results[i] == PartResult::kOk) frame.results[i] = CheckPut(peer, part, PutState::kQueued, put);
  if (frame.results[i] != PartResult::kOk) {
    ++frame.next;
    frame.next_at = frame.crc = 0;
    return 0;
  }
  puts_.SetState(put, PutState::kPulling, PullName(index, i));
  const uint32_t at = frame.next_at;
  const auto bytes = in_pieces ? static_cast<uint32_t>(budget) : part.length - at;
  if (in_pieces || at > 0) frame.piece_bytes = bytes;
  if (in_pieces) {
    frame.next_at += bytes;
  } else {
    ++frame.next;
    frame.next_at = 0;
  }
  const Segment target{.data = ram_.data(puts_.row(put).slot) + at, .bytes = bytes};
  ++frame.waiting;
  const absl::Status started = transport_.Pull(peer, {.pull_id = part.put_id,
                                                      .region = 0,
                                                      .offset = part.window_offset + at,
                                                      .bytes = bytes,
                                                      .target = absl::MakeConstSpan(&target, 1)});
  if (!started.ok()) OnPulled(peer, part.put_id, {.result = PartResult::kInvalid});
  return in_own_time ? bytes : bytes / kPullsAheadOfOthers;
}

void NodeShard::OnPulled(PeerId peer, uint64_t pull_id, const PullResult& result) {
  const auto put = puts_.Find(peer, pull_id);
  if (!put.has_value() || puts_.row(*put).state != PutState::kPulling) return;
  const uint64_t name = puts_.row(*put).request_id;
  const auto index = static_cast<uint32_t>(name >> 32);
  const auto part = static_cast<uint32_t>(name);
  PutFrame& frame = put_frames_[index];
  uint32_t crc = result.crc;
  if (frame.piece_bytes != 0) {
    crc = Crc32cJoin(frame.crc, crc, frame.piece_bytes);
    frame.piece_bytes = 0;
    frame.crc = frame.next == part ? crc : 0;
  }
  --frame.waiting;
  if (result.result != PartResult::kOk) {
    frame.results[part] = result.result;
    AbandonPut(*put);
  } else if (frame.next == part) {  // The rest of it waits for its turn.
    puts_.SetState(*put, PutState::kQueued, name);
    return;
  } else {
    frame.results[part] = CheckBytes(*put, frame.request.parts[part].crc, crc);
  }
  const bool queued = std::find(pull_queue_.begin(), pull_queue_.end(), index) != pull_queue_.end();
  if (frame.waiting == 0 && !queued) FinishFrame(index);
}

void NodeShard::FinishFrame(uint32_t index) {
  PutFrame& frame = put_frames_[index];
  PublishFrame(frame.peer, frame.request, absl::MakeSpan(frame.results));
  put_reply_.results.assign(frame.results.begin(), frame.results.end());
  frame.live = false;
  free_put_frames_.push_back(index);
  Reply(frame.peer, FrameType::kPutReply, frame.request_id, put_reply_);
}

void NodeShard::DropFramesOf(PeerId peer) {
  for (uint32_t i = 0; i < put_frames_.size(); ++i) {
    if (!put_frames_[i].live || put_frames_[i].peer != peer) continue;
    put_frames_[i].live = false;
    free_put_frames_.push_back(i);
    std::erase(pull_queue_, i);
  }
}

}  // namespace cistern
