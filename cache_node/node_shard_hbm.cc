// The HBM tier of a shard: what plans wait for from the device.
#include <utility>

#include "cache_node/disk/disk_tier.h"
#include "cache_node/hbm_tier.h"
#include "cache_node/node_shard.h"

namespace cistern {

void NodeShard::AttachHbm(std::unique_ptr<HbmTier> hbm) {
  hbm_ = std::move(hbm);
  hbm_->Attach(ram_, disk_.get());
}

// Brings what a plan lacks in RAM, and HBM has, into RAM: readers without the device read there. What is on
// disk alone is brought after that. False: HBM has nothing of it.
bool NodeShard::StageFromHbm(PeerId peer, const InFrame& frame, uint32_t in_ram) {
  PartResult why = PartResult::kOk;
  const uint32_t blocks = in_ram + BlocksBelow(chain_, in_ram, why);
  const auto on_device = [this](uint32_t block, size_t c) {
    const BlockKey& key = chain_.blocks[block];
    return ram_.Find(key.hash, chain_.coords[c]) == kNoSlot &&
           hbm_->Judge(key, chain_.coords[c], chain_.layout, chain_.BytesOf(c)) == PartResult::kOk;
  };
  bool any = false;
  for (uint32_t block = in_ram; block < blocks && !any; ++block) {
    for (size_t c = 0; c < chain_.coords.size() && !any; ++c) any = on_device(block, c);
  }
  const uint64_t group = any ? hbm_->OpenGroup() : 0;
  if (group == 0) return false;  // Or kHbmGroupsMax plans wait: the hit is as long as RAM makes it.
  for (uint32_t block = 0; block < blocks; ++block) {
    for (size_t c = 0; c < chain_.coords.size(); ++c) {
      const SlotId slot = ram_.Find(chain_.blocks[block].hash, chain_.coords[c]);
      if (slot != kNoSlot) {
        if (ram_.TryLease(slot)) hbm_->Hold(group, slot);  // So that it is still there when the rest is.
      } else if (on_device(block, c)) {
        hbm_->Want(group, chain_.blocks[block].hash, chain_.coords[c]);
      }
    }
  }
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
