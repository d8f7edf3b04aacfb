#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "core/calc/gap_histogram.h"
#include "core/calc/stack_distance.h"
#include "core/trace_reader.h"

namespace cistern {

// Distinct blocks of one log; about 60 bytes each here. Twice as many times must fit 32 bits.
inline constexpr uint32_t kProfileBlocksMax = 1u << 27;
inline constexpr size_t kProfileTtlsMax = 64;

// How soon a block comes back, on average over its life.
enum class Temperature { kHot, kWarm, kCold, kOnce };
inline constexpr size_t kTemperatures = 4;
const char* TemperatureName(Temperature temperature);

struct TraceProfileOptions {
  std::vector<uint64_t> ttls_ms = {60'000, 300'000, 600'000, 1'800'000, 3'600'000, 86'400'000};
  uint64_t hot_ms = 60'000;    // Mean reuse gap of a hot block at most.
  uint64_t warm_ms = 600'000;  // Of a warm one.
};

// What a request log says about caching, whatever the cache: fed one request at a time, holds what grows with
// its distinct blocks only. A reference is a hit when all blocks before it in its request are hits too;
// blocks of a request are touched last first, so under LRU no child outlives its parent. One thread.
class TraceProfile {
 public:
  explicit TraceProfile(TraceProfileOptions options = {});

  // ResourceExhausted once the log has more than kProfileBlocksMax blocks; that request is left out.
  absl::Status Add(const TraceRequest& request);

  uint64_t requests() const { return requests_; }
  uint64_t references() const { return references_; }
  uint64_t unique_blocks() const { return blocks_.size(); }
  uint32_t block_tokens() const { return block_tokens_; }  // Of the last request.
  uint64_t input_tokens() const { return input_tokens_; }
  uint64_t output_tokens() const { return output_tokens_; }
  uint64_t requests_with_hit() const { return requests_with_hit_; }
  uint64_t requests_all_hit() const { return requests_all_hit_; }
  uint64_t hit_tokens() const { return hit_tokens_; }  // With room for everything.
  // Requests older than one before them: distances then follow the file, not the clock.
  uint64_t out_of_order() const { return out_of_order_; }
  double span_s() const;

  // Hits over references, with room for everything; with an LRU of so many blocks; with entries that live so
  // long after their last use, at options.ttls_ms[i].
  double IdealHitRatio() const { return Ratio(hits_); }
  double HitRatio(uint64_t lru_blocks) const;
  double TtlHitRatio(size_t i) const { return Ratio(ttl_hits_[i]); }
  // Least LRU that reaches this share (0..1] of the ideal hits.
  uint64_t BlocksForShare(double share) const;
  // Stack distance that `share` of the hits do not exceed.
  uint64_t DistancePercentile(double share) const { return BlocksForShare(share); }
  double GapPercentileSeconds(double share) const {
    return static_cast<double>(gaps_.Percentile(share)) / 1e3;
  }

  struct TemperatureShare {
    uint64_t blocks = 0;
    uint64_t reuses = 0;  // References after the first.
  };
  std::array<TemperatureShare, kTemperatures> Temperatures() const;
  uint64_t BlocksUsedOnce() const;
  // References to the `share` of blocks that have most, over all references.
  double HottestShare(double share) const;
  const TraceProfileOptions& options() const { return options_; }

 private:
  struct Block {
    int64_t first_ms = 0;
    int64_t last_ms = 0;
    uint64_t uses = 0;
  };

  double Ratio(uint64_t hits) const;
  uint32_t CountHits(int64_t now_ms);
  void Touch(int64_t now_ms);

  const TraceProfileOptions options_;
  absl::flat_hash_map<uint64_t, uint32_t> number_of_;  // Id -> index of blocks_.
  std::vector<Block> blocks_;
  StackDistance stack_;
  std::vector<uint64_t> at_distance_;  // Hits by stack distance.
  std::vector<uint64_t> ttl_hits_;
  GapHistogram gaps_;
  std::vector<uint32_t> chain_;  // Of the request at hand.

  uint64_t requests_ = 0, references_ = 0, hits_ = 0, input_tokens_ = 0, output_tokens_ = 0, hit_tokens_ = 0;
  uint64_t requests_with_hit_ = 0, requests_all_hit_ = 0, out_of_order_ = 0;
  uint32_t block_tokens_ = kTraceBlockTokensDefault;
  int64_t first_ms_ = 0, newest_ms_ = 0;
};

}  // namespace cistern
