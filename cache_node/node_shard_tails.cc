// What a shard tells of tails and misses, and what it is told of chains.
#include "cache_node/disk/disk_tier.h"
#include "cache_node/node_shard.h"

namespace cistern {

// Fills the answer to kFlagDetail: which of the leading blocks end at a whole tail, and why the next is
// missing.
void NodeShard::FillDetail(const InFrame& frame, const ScanResult& scan, ReplyDetail& detail) {
  detail.present = (frame.header.flags & kFlagDetail) != 0;
  detail.why = MissReason::kNone;
  detail.tails.clear();
  if (!detail.present) return;
  if (scan.hit_blocks < chain_.blocks.size()) {
    if (scan.stopped_by == PartResult::kLayout) {
      detail.why = MissReason::kLayout;
    } else if (scan.stopped_by == PartResult::kMiss) {
      const BlockHash& hash = chain_.blocks[scan.hit_blocks].hash;
      detail.why = ram_.WasExpired(hash)    ? MissReason::kExpired
                   : ram_.WasEvicted(hash)  ? MissReason::kEvicted
                   : chain_.tail_parts != 0 ? MissReason::kNoTail
                                            : MissReason::kNeverSeen;
    } else {
      detail.why = MissReason::kUnreachable;
    }
  }
  if (!ram_.HasTails() && (disk_ == nullptr || !disk_->HasTails())) return;
  for (uint32_t block = 0; block < scan.hit_blocks; ++block) {
    if (!IsTailHere(chain_.blocks[block].hash)) continue;
    if (detail.tails.size() <= block / 64) detail.tails.resize(block / 64 + 1);
    detail.tails[block / 64] |= uint64_t{1} << (block % 64);
  }
}

bool NodeShard::IsTailHere(const BlockHash& block) const {
  return ram_.IsTailWhole(block) || (disk_ != nullptr && disk_->HasTail(block));
}

void NodeShard::Note(PeerId peer, const InFrame& frame) {
  if (const absl::Status decoded = note_.Decode(frame.body); !decoded.ok()) {
    ++counters_.bad_frames;
    return;
  }
  for (const NoteRequest::Superseded& note : note_.superseded) ram_.SupersedeTail(note.block, note.successor);
  for (const NoteRequest::Stranded& note : note_.stranded) {
    const auto plan = leases_.FindPlan(peer, note.plan_id, clock_.Now());
    if (!plan.has_value()) continue;
    const auto& slots = leases_.row(*plan).slots;
    for (size_t i = note.first_part; i < slots.size(); ++i) ram_.Strand(slots[i]);
  }
}

void NodeShard::Agree(PeerId peer, const InFrame& frame) {
  AgreeRequest request;
  if (const absl::Status decoded = request.Decode(frame.body); !decoded.ok()) {
    ++counters_.bad_frames;
    return ReplyError(peer, frame.header.request_id, decoded);
  }
  const Nanos now = clock_.Now();
  const DecisionTable::Decision decision = request.propose
                                               ? decisions_.Propose(request.request, request.tokens, now)
                                               : decisions_.Peek(request.request, now);
  Reply(peer, FrameType::kAgreeReply, frame.header.request_id,
        AgreeReply{.tokens = decision.tokens, .asked = decision.asked, .incarnation = incarnation_});
}

}  // namespace cistern
