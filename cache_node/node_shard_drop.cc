// Drops: whole, and in turns that have a bound, whatever they name.
#include <algorithm>
#include <utility>

#include "cache_node/disk/disk_tier.h"
#include "cache_node/hbm_tier.h"
#include "cache_node/node_shard.h"

namespace cistern {
namespace {

constexpr uint32_t kBehindPerTurn = 16;  // Frames that had to wait for a drop, handled in one turn.

}  // namespace

// Whose answer depends on what is stored, or changes it; and what names a plan that is not there, because it
// waits itself. What belongs to an offer or a plan from before the drop goes on.
bool NodeShard::GoesBehindDrops(PeerId peer, const Peer& state, const InFrame& frame) {
  const auto waits = [&](uint64_t plan) {
    return state.behind_drop > 0 && !leases_.FindPlan(peer, plan, clock_.Now()).has_value();
  };
  switch (frame.header.type) {
    case FrameType::kLookup:
    case FrameType::kPlan:
    case FrameType::kOffer:
    case FrameType::kNote:
    case FrameType::kAgree:
    case FrameType::kDrop:
      return true;
    case FrameType::kRelease:
      return ids_.Decode(frame.body).ok() && std::any_of(ids_.ids.begin(), ids_.ids.end(), waits);
    case FrameType::kRead:
      return read_.Decode(frame.body).ok() && waits(read_.plan_id);
    case FrameType::kRenew: {
      RenewRequest renew;
      return renew.Decode(frame.body).ok() && waits(renew.plan_id);
    }
    default:
      return false;
  }
}

// A peer's frames have their order: what it sends behind a drop sees all of it, and stores what stays. True:
// the frame waits, or has been refused.
bool NodeShard::WaitsForDrop(PeerId peer, Peer& state, const InFrame& frame) {
  if ((!state.drops && state.behind_drop == 0) || !GoesBehindDrops(peer, state, frame)) return false;
  if (behind_drops_.size() >= kBehindDropsMax) {
    ReplyError(peer, frame.header.request_id,
               absl::ResourceExhaustedError("kBehindDropsMax requests wait for the end of drops; try again"));
    return true;
  }
  ++state.behind_drop;
  behind_drops_.push_back(
      {.peer = peer, .header = frame.header, .body = Bytes(frame.body.begin(), frame.body.end())});
  return true;
}

void NodeShard::Drop(PeerId peer, const Peer& state, const InFrame& frame) {
  DropRequest request;
  if (const absl::Status decoded = request.Decode(frame.body); !decoded.ok()) {
    ++counters_.bad_frames;
    return ReplyError(peer, frame.header.request_id, decoded);
  }
  // Who may write may take away what it can name; everything is for who runs the cluster.
  if (!Allowed(peer, state, frame.header, request.all ? kRightAdmin : kRightWrite)) return;
  if (drops_.size() >= kDropsMax) {
    return ReplyError(peer, frame.header.request_id,
                      absl::ResourceExhaustedError("kDropsMax drops are under way; try again"));
  }
  drops_.push_back({.peer = peer,
                    .request_id = frame.header.request_id,
                    .blocks = std::move(request.blocks),
                    .all = request.all});
  peers_.at(peer).drops = true;
  PollDrops();
}

// In all tiers at once: what moves between them looks for a part where it comes from before it lets others
// find it.
void NodeShard::DropPart(const BlockHash& block, PartCoord coord, DropReply& reply) {
  const RamTier::Dropped here = ram_.DropPart(block, coord);
  uint64_t parts = here.parts;
  if (hbm_ != nullptr) parts += hbm_->tier().DropPart(block, coord).parts;
  if (disk_ != nullptr) parts += disk_->log().DropPart(block, coord) ? 1 : 0;
  reply.dropped_parts += parts;
  reply.kept_parts += here.kept;
  drop_looks_ -= std::min(drop_looks_, kLooksOfADrop * parts);
}

// What others store of a block between the first of its parts to go and EndDrop stays in RAM, and is found on
// disk; but its record lies before the drop's, and to the next start it is gone with the rest: a miss
// (DiskLogDrops.WhatIsStoredBeforeTheEndOfItsDropIsAMissAtMost). What was there before is older than both.
//
// Goes on with a drop: asks for each coordinate that RAM or disk has seen. True: it has ended.
bool NodeShard::DropOn(DropJob& job) {
  for (; job.block < job.blocks.size(); ++job.block, job.from = 0) {
    const BlockHash& block = job.blocks[job.block];
    for (uint64_t coord = 0; coord != CoordsSeen::kNone;) {
      if (drop_looks_ == 0) return false;
      --drop_looks_;
      coord = ram_.coords_seen().Next(job.from);
      if (disk_ != nullptr) coord = std::min(coord, disk_->log().coords_seen().Next(job.from));
      if (coord == CoordsSeen::kNone) continue;
      job.from = coord + 1;
      DropPart(block, PartCoord::Unpack(static_cast<uint32_t>(coord)), job.reply);
    }
    if (disk_ != nullptr) disk_->log().EndDrop(block);
  }
  return true;
}

// Everything goes from the top down. Meanwhile nothing goes up, so what a tier that is not empty yet gives
// away comes to one whose turn is still to come. What others store meanwhile goes too, or stays.
bool NodeShard::DropAllOn(DropJob& job) {
  if (!std::exchange(job.begun, true)) {
    if (hbm_ != nullptr) hbm_->Close(true);
    if (disk_ != nullptr) disk_->log().Hide();
  }
  for (; job.tiers < 2; ++job.tiers, job.slot = 0) {
    const bool device = job.tiers == 0;
    if (device && hbm_ == nullptr) continue;
    RamTier& tier = device ? hbm_->tier() : ram_;
    RamTier::Dropped dropped;
    const bool ended = tier.DropOn(job.slot, drop_looks_, dropped);
    job.reply.dropped_parts += dropped.parts;
    if (!device) job.reply.kept_parts += dropped.kept + (ended ? ram_.writing_parts() : 0);
    if (!ended) return false;
  }
  if (disk_ != nullptr && !disk_->log().DropAllOn(drop_looks_, job.reply.dropped_parts)) return false;
  EndDropAll();
  return true;
}

void NodeShard::EndDropAll() {
  if (hbm_ != nullptr) hbm_->Close(false);
  if (disk_ != nullptr) disk_->log().EndDropAll();
}

void NodeShard::PollDrops() {
  while (!drops_.empty() && (drops_.front().all ? DropAllOn(drops_.front()) : DropOn(drops_.front()))) {
    const DropJob done = std::move(drops_.front());
    drops_.pop_front();
    peers_.at(done.peer).drops = false;
    Reply(done.peer, FrameType::kDropReply, done.request_id, done.reply);
  }
}

// What waited behind drops that have ended.
void NodeShard::HandleBehindDrops() {
  uint32_t handled = 0;
  for (size_t i = 0; i < behind_drops_.size() && handled < kBehindPerTurn;) {
    if (peers_.at(behind_drops_[i].peer).drops) {
      ++i;
      continue;
    }
    ++handled;
    const WaitingFrame waiting = std::move(behind_drops_[i]);
    behind_drops_.erase(behind_drops_.begin() + static_cast<ptrdiff_t>(i));
    Peer& state = peers_.at(waiting.peer);
    --state.behind_drop;
    Handle(waiting.peer, Peer(state), {.header = waiting.header, .body = waiting.body, .piece_crcs = {}});
  }
}

// A drop that nobody waits for ends where it is: its peer may be back already, and store.
void NodeShard::EndDropsOf(PeerId peer) {
  std::erase_if(behind_drops_, [peer](const WaitingFrame& one) { return one.peer == peer; });
  const auto at =
      std::find_if(drops_.begin(), drops_.end(), [peer](const DropJob& one) { return one.peer == peer; });
  if (at == drops_.end()) return;
  if (at->begun) EndDropAll();
  if (at->from != 0 && disk_ != nullptr) disk_->log().EndDrop(at->blocks[at->block]);
  drops_.erase(at);
}

}  // namespace cistern
