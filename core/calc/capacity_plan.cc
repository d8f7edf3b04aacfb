#include "core/calc/capacity_plan.h"

#include <algorithm>
#include <limits>

#include "core/calc/economics.h"

namespace cistern {

uint64_t CapacityPlan::BlocksIn(uint64_t bytes) const {
  const double blocks = BlockBytes() > 0 ? static_cast<double>(bytes) / BlockBytes() : 0;
  return blocks >= static_cast<double>(profile_.unique_blocks()) ? profile_.unique_blocks()
                                                                 : static_cast<uint64_t>(blocks);
}

CapacityRow CapacityPlan::OfBlocks(uint64_t blocks) const {
  CapacityRow row;
  row.blocks = blocks;
  row.bytes = static_cast<double>(blocks) * BlockBytes();
  row.hit_ratio = profile_.HitRatio(blocks);
  row.ram_usd_month = row.bytes / 1e9 * prices_.ram_usd_per_gb_month;
  row.nvme_usd_month = row.bytes / 1e9 * prices_.nvme_usd_per_gb_month;
  const double ideal = profile_.IdealHitRatio();
  if (ideal > 0 && profile_.span_s() > 0) {
    // Hits of a size save their share of all hit tokens; a log's last blocks may be part-filled.
    const double tokens = static_cast<double>(profile_.hit_tokens()) * row.hit_ratio / ideal;
    row.saved_usd_month = tokens * prices_.usd_per_prefill_token / profile_.span_s() * kSecondsPerMonth;
  }
  return row;
}

TieredPlan CapacityPlan::OfTiers(uint64_t ram_bytes, uint64_t nvme_bytes) const {
  TieredPlan plan;
  plan.ram = OfBlocks(BlocksIn(ram_bytes));
  plan.all = OfBlocks(BlocksIn(std::max(ram_bytes, nvme_bytes)));
  plan.usd_month = static_cast<double>(ram_bytes) / 1e9 * prices_.ram_usd_per_gb_month +
                   static_cast<double>(nvme_bytes) / 1e9 * prices_.nvme_usd_per_gb_month;
  return plan;
}

double CapacityPlan::BreakEvenStaySeconds(double usd_per_gb_month) const {
  const double usd_per_token_second = prices_.bytes_per_token / 1e9 * usd_per_gb_month / kSecondsPerMonth;
  if (!(usd_per_token_second > 0)) return std::numeric_limits<double>::infinity();
  return prices_.usd_per_prefill_token / usd_per_token_second;
}

}  // namespace cistern
