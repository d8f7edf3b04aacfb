#include "core/calc/gap_histogram.h"

#include <bit>
#include <cmath>

namespace cistern {

uint32_t GapHistogram::Bucket(uint64_t ms) {
  if (ms < kExact) return static_cast<uint32_t>(ms);
  const auto shift = static_cast<uint32_t>(std::bit_width(ms)) - 1 - kStepBits;  // At least 1.
  const auto step = static_cast<uint32_t>(ms >> shift) - (1u << kStepBits);
  return kExact + ((shift - 1) << kStepBits) + step;
}

uint64_t GapHistogram::Last(uint32_t bucket) {
  if (bucket < kExact) return bucket;
  const uint32_t shift = ((bucket - kExact) >> kStepBits) + 1;
  const uint64_t step = ((bucket - kExact) & ((1u << kStepBits) - 1)) + (1u << kStepBits);
  return ((step + 1) << shift) - 1;
}

uint64_t GapHistogram::Percentile(double share) const {
  if (total_ == 0) return 0;
  const auto wanted = static_cast<uint64_t>(std::ceil(share * static_cast<double>(total_)));
  uint64_t seen = 0;
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += counts_[bucket];
    if (seen >= wanted && seen > 0) return Last(bucket);
  }
  return Last(kBuckets - 1);
}

}  // namespace cistern
