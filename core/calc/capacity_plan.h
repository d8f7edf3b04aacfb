#pragma once

#include <cstdint>
#include <vector>

#include "core/calc/trace_profile.h"

namespace cistern {

// What turns blocks into bytes and hits into money. Months are of 30.4375 days; GB are 10^9 bytes.
struct CapacityPrices {
  double bytes_per_token = 0;
  double usd_per_prefill_token = 0;  // What a hit token saves.
  double ram_usd_per_gb_month = 0;
  double nvme_usd_per_gb_month = 0;
};

// One size of cache for one log: an LRU over all blocks.
struct CapacityRow {
  uint64_t blocks = 0;
  double bytes = 0;
  double hit_ratio = 0;
  double ram_usd_month = 0;    // If all of it is RAM.
  double nvme_usd_month = 0;   // If all of it is NVMe.
  double saved_usd_month = 0;  // Prefill that hits save at the log's rate.
};

// RAM over NVMe that holds what RAM holds, too (write-through).
struct TieredPlan {
  CapacityRow ram{};     // What RAM alone serves.
  CapacityRow all{};     // Both; the larger of the two holds everything.
  double usd_month = 0;  // RAM and NVMe together.
};

class CapacityPlan {
 public:
  // Both are borrowed.
  CapacityPlan(const TraceProfile& profile, const CapacityPrices& prices)
      : profile_(profile), prices_(prices) {}

  double BlockBytes() const { return prices_.bytes_per_token * profile_.block_tokens(); }
  // How many whole blocks fit; all of the log's at most.
  uint64_t BlocksIn(uint64_t bytes) const;
  CapacityRow OfBlocks(uint64_t blocks) const;
  TieredPlan OfTiers(uint64_t ram_bytes, uint64_t nvme_bytes) const;
  // Seconds that a prefix may wait in one tier for its next use and still pay: after that computing it again
  // is cheaper than its stay.
  double BreakEvenStaySeconds(double usd_per_gb_month) const;

 private:
  const TraceProfile& profile_;
  const CapacityPrices& prices_;
};

}  // namespace cistern
