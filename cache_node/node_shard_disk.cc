// The NVMe tier of a shard: what plans wait for, what puts wait for, what is stored.
#include <algorithm>
#include <utility>

#include "cache_node/disk/disk_tier.h"
#include "cache_node/hbm_tier.h"
#include "cache_node/node_shard.h"

namespace cistern {
namespace {

constexpr uint64_t kFirstPartBytes = 2u << 20;  // Of a plan that is answered in parts.
constexpr uint64_t kReadAheadShare = 4;         // Of the RAM: 1 / 4 at most for one plan.

}  // namespace

void NodeShard::AttachDisk(std::unique_ptr<DiskTier> disk) {
  disk_ = std::move(disk);
  disk_->Attach(ram_);
  LoadQuotas();
}

// Blocks behind a scan that stopped at one which RAM lacks: how many of them are in RAM, in HBM or on disk,
// with every part.
uint32_t NodeShard::BlocksBelow(const ChainRequest& request, uint32_t from, PartResult& stopped_by) {
  const uint32_t blocks = BlocksOfThisShard(request);
  const LayoutIndex layout = ram_.FindLayout(request.layout);
  if (request.tail_parts != 0 && blocks != 0 && !IsTailHere(request.blocks[0].hash)) return 0;
  uint32_t block = from;
  for (; block < blocks; ++block) {
    for (size_t c = 0; c < request.coords.size(); ++c) {
      const PartCoord coord = request.coords[c];
      const BlockKey& key = request.blocks[block];
      const SlotId slot = ram_.Find(key.hash, coord);
      stopped_by = PartResult::kMiss;
      if (slot != kNoSlot) {
        stopped_by = ram_.Judge(slot, key.fingerprint, layout, request.BytesOf(c));
      } else if (hbm_ != nullptr) {
        stopped_by = hbm_->Judge(key, coord, request.layout, request.BytesOf(c));
      }
      if (slot == kNoSlot && stopped_by == PartResult::kMiss && disk_ != nullptr)
        stopped_by = disk_->Judge(key, coord, request.layout, request.BytesOf(c));
      if (stopped_by != PartResult::kOk) return block - from;
    }
  }
  if (blocks < request.blocks.size()) stopped_by = PartResult::kWrongShard;
  return block - from;
}

// The asker comes again for what an answer leaves out. Tails are whole or nothing.
bool NodeShard::TakesParts(const InFrame& frame) const {
  return (frame.header.flags & kFlagInParts) != 0 && chain_.tail_parts == 0;
}

// Brings what a plan lacks in RAM, and the disk has, into RAM; the plan is answered after that, or, where the
// asker takes an answer in parts, as soon as there is a first one: it reads that while the disk is read on.
// False: the plan is not to wait. below: blocks behind those in RAM, as of BlocksBelow.
bool NodeShard::StageFirst(PeerId peer, const InFrame& frame, uint32_t in_ram, uint32_t below) {
  if (disk_ == nullptr || resuming_ == Resuming::kYes || below == 0) return false;
  const uint64_t block_bytes = std::max<uint64_t>(1, chain_.BlockBytes());
  const auto blocks_of = [&](uint64_t bytes) {
    return static_cast<uint32_t>(std::clamp<uint64_t>(bytes / block_bytes, 1, below));
  };
  const TenantIndex tenant = peers_.at(peer).tenant;
  const bool in_parts = TakesParts(frame);
  const uint32_t waits = !in_parts ? below : in_ram > 0 ? 0 : blocks_of(kFirstPartBytes);
  if (waits > 0) {
    const uint64_t group = disk_->OpenGroup();
    if (group == 0) return false;  // kStageGroupsMax plans wait: the hit is as long as RAM makes it.
    for (uint32_t block = 0; block < in_ram + waits; ++block) StageBlock(group, block, tenant);
    waiting_plans_[group] = {
        .peer = peer, .header = frame.header, .body = Bytes(frame.body.begin(), frame.body.end())};
    ++counters_.staged_plans;
    disk_->CloseGroup(group);
  }
  // What the asker will come for next.
  const uint32_t ahead = std::min(below - waits, blocks_of(ram_.capacity_bytes() / kReadAheadShare));
  const uint64_t group = ahead == 0 ? 0 : disk_->OpenGroup();
  if (group == 0) return waits > 0;
  for (uint32_t block = 0; block < ahead; ++block) StageBlock(group, in_ram + waits + block, tenant);
  disk_->CloseGroup(group);
  return waits > 0;
}

void NodeShard::StageBlock(uint64_t group, uint32_t block, TenantIndex tenant) {
  for (size_t c = 0; c < chain_.coords.size(); ++c) {
    const PartCoord coord = chain_.coords[c];
    const BlockKey& key = chain_.blocks[block];
    const SlotId slot = ram_.Find(key.hash, coord);
    if (slot == kNoSlot) {
      disk_->Want(group, key, coord, chain_.layout, chain_.BytesOf(c), tenant);
    } else if (ram_.TryLease(slot)) {  // So that it is still there when the rest is.
      disk_->Hold(group, slot);
    }
  }
}

// While the log is behind, offers wait a little instead of filling RAM with what cannot be written (F42).
bool NodeShard::HoldOffer(PeerId peer, const InFrame& frame) {
  if (disk_ == nullptr || resuming_ != Resuming::kNo || !disk_->IsBehind() ||
      waiting_offers_.size() >= kWaitingOffersMax)
    return false;
  waiting_offers_.push_back({.peer = peer,
                             .header = frame.header,
                             .body = Bytes(frame.body.begin(), frame.body.end()),
                             .until = clock_.Now() + kOfferWaitMax});
  ++counters_.held_offers;
  return true;
}

// Nothing is written to a folder before the router has confirmed whose it is (F34).
bool NodeShard::PollDisk() {
  if (disk_ == nullptr || !cluster_.has_value()) return false;
  bool any = disk_->Poll();
  uint64_t group = 0;
  std::vector<SlotId> held;
  while (disk_->TakeReady(group, held)) {
    any = true;
    if (const auto it = waiting_plans_.find(group); it != waiting_plans_.end()) {  // Else read ahead.
      const WaitingFrame plan = std::move(it->second);
      waiting_plans_.erase(it);
      Resume(plan, FrameType::kPlan, Resuming::kYes);
    }
    for (size_t i = held.size(); i-- > 0;) ram_.Unlease(held[i]);
  }
  while (!waiting_offers_.empty() && (!disk_->IsBehind() || waiting_offers_.front().until <= clock_.Now())) {
    any = true;
    const WaitingFrame offer = std::move(waiting_offers_.front());
    waiting_offers_.pop_front();
    Resume(offer, FrameType::kOffer, Resuming::kYes);
  }
  return any;
}

// Handles a frame that had to wait, as if it came now.
void NodeShard::Resume(const WaitingFrame& waiting, FrameType type, Resuming how) {
  if (!peers_.contains(waiting.peer)) return;  // Its connection is gone.
  const InFrame frame{.header = waiting.header, .body = waiting.body, .piece_crcs = {}};
  resuming_ = how;
  type == FrameType::kPlan ? Plan(waiting.peer, frame) : Offer(waiting.peer, frame);
  resuming_ = Resuming::kNo;
}

Nanos NodeShard::DiskWake() const {
  if (disk_ == nullptr || !cluster_.has_value()) return kNever;
  return std::min(disk_->NextWake(), waiting_offers_.empty() ? kNever : waiting_offers_.front().until);
}

void NodeShard::StoreOnDisk(absl::Span<const SlotId> slots, absl::Span<const uint32_t> depths) {
  if (disk_ != nullptr && !slots.empty()) disk_->Published(slots, depths);
}

}  // namespace cistern
