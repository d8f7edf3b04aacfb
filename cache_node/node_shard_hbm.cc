// The HBM tier of a shard: what plans wait for from the device.
#include <utility>
#include <vector>

#include "cache_node/disk/disk_tier.h"
#include "cache_node/hbm_tier.h"
#include "cache_node/node_shard.h"

namespace cistern {

void NodeShard::AttachHbm(std::unique_ptr<HbmTier> hbm) {
  hbm_ = std::move(hbm);
  hbm_->Attach(ram_, disk_.get());
}

// Brings what a plan lacks in RAM, and HBM has, into RAM: readers without the device read there. What is on
// disk alone is brought after that. False: HBM has nothing of it. slots_ are the parts of the blocks in RAM,
// below the blocks behind them, as of BlocksBelow.
bool NodeShard::StageFromHbm(PeerId peer, const InFrame& frame, uint32_t in_ram, uint32_t below) {
  if (hbm_ == nullptr || resuming_ != Resuming::kNo) return false;
  std::vector<SlotId> here = slots_;  // Kept, so that they are still there when the rest is.
  std::vector<std::pair<uint32_t, PartCoord>> on_device;
  for (uint32_t block = in_ram; block < in_ram + below; ++block) {
    for (size_t c = 0; c < chain_.coords.size(); ++c) {
      const BlockKey& key = chain_.blocks[block];
      const PartCoord coord = chain_.coords[c];
      if (const SlotId slot = ram_.Find(key.hash, coord); slot != kNoSlot) {
        here.push_back(slot);
      } else if (hbm_->Judge(key, coord, chain_.layout, chain_.BytesOf(c)) == PartResult::kOk) {
        on_device.emplace_back(block, coord);
      }
    }
  }
  const uint64_t group = on_device.empty() ? 0 : hbm_->OpenGroup();
  if (group == 0) return false;  // Or kHbmGroupsMax plans wait: the hit is as long as RAM makes it.
  for (const SlotId slot : here) {
    if (ram_.TryLease(slot)) hbm_->Hold(group, slot);
  }
  for (const auto& [block, coord] : on_device) hbm_->Want(group, chain_.blocks[block].hash, coord);
  waiting_for_hbm_[group] = {
      .peer = peer, .header = frame.header, .body = Bytes(frame.body.begin(), frame.body.end())};
  hbm_->CloseGroup(group);
  ++counters_.staged_plans;
  return true;
}

bool NodeShard::PollHbm() {
  if (hbm_ == nullptr) return false;
  bool any = hbm_->Poll();
  uint64_t group = 0;
  std::vector<SlotId> held;
  while (hbm_->TakeReady(group, held)) {
    any = true;
    const auto it = waiting_for_hbm_.find(group);
    const WaitingFrame plan = std::move(it->second);
    waiting_for_hbm_.erase(it);
    Resume(plan, FrameType::kPlan, Resuming::kFromHbm);
    for (size_t i = held.size(); i-- > 0;) ram_.Unlease(held[i]);
  }
  return any;
}

Nanos NodeShard::HbmWake() const { return hbm_ == nullptr ? kNever : hbm_->NextWake(); }

}  // namespace cistern
