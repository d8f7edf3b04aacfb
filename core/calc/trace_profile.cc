#include "core/calc/trace_profile.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cistern {

const char* TemperatureName(Temperature temperature) {
  switch (temperature) {
    case Temperature::kHot:
      return "hot";
    case Temperature::kWarm:
      return "warm";
    case Temperature::kCold:
      return "cold";
    case Temperature::kOnce:
      return "once";
  }
  return "?";
}

TraceProfile::TraceProfile(TraceProfileOptions options)
    : options_(std::move(options)), ttl_hits_(options_.ttls_ms.size()) {}

absl::Status TraceProfile::Add(const TraceRequest& request) {
  const std::vector<uint64_t>& ids = request.hash_ids;
  if (blocks_.size() + ids.size() > kProfileBlocksMax) {
    return absl::ResourceExhaustedError(absl::StrCat("line ", request.line, ": the log has over ",
                                                     kProfileBlocksMax,
                                                     " distinct blocks; profile a part of it"));
  }
  const int64_t now = request.timestamp_ms;
  if (requests_ == 0) first_ms_ = newest_ms_ = now;
  if (now < newest_ms_) ++out_of_order_;
  first_ms_ = std::min(first_ms_, now);
  newest_ms_ = std::max(newest_ms_, now);
  chain_.clear();
  for (const uint64_t id : ids) {
    const auto [at, fresh] = number_of_.try_emplace(id, static_cast<uint32_t>(blocks_.size()));
    if (fresh) blocks_.push_back({.first_ms = now});
    chain_.push_back(at->second);
  }
  stack_.Grow(static_cast<uint32_t>(blocks_.size()));
  const uint32_t hit = CountHits(now);
  Touch(now);

  ++requests_;
  references_ += ids.size();
  hits_ += hit;
  block_tokens_ = request.block_tokens;
  input_tokens_ += request.input_tokens;
  output_tokens_ += request.output_tokens;
  hit_tokens_ += std::min(uint64_t{hit} * request.block_tokens, uint64_t{request.input_tokens});
  if (hit > 0) ++requests_with_hit_;
  if (hit > 0 && hit == ids.size()) ++requests_all_hit_;
  return absl::OkStatus();
}

// Blocks of chain_ from its start that were seen before; each with the largest distance and gap up to it, for
// a prefix is there only as far as its rarest block.
uint32_t TraceProfile::CountHits(int64_t now_ms) {
  uint32_t distance = 0;
  uint64_t gap = 0;
  uint32_t hit = 0;
  for (const uint32_t block : chain_) {
    if (blocks_[block].uses == 0) break;
    distance = std::max(distance, stack_.Distance(block));
    gap = std::max(gap, static_cast<uint64_t>(std::max<int64_t>(0, now_ms - blocks_[block].last_ms)));
    if (at_distance_.size() <= distance) at_distance_.resize(size_t{distance} + 1 + distance / 2);
    ++at_distance_[distance];
    gaps_.Add(gap);
    for (size_t i = 0; i < ttl_hits_.size(); ++i) {
      if (gap <= options_.ttls_ms[i]) ++ttl_hits_[i];
    }
    ++hit;
  }
  return hit;
}

void TraceProfile::Touch(int64_t now_ms) {
  for (size_t i = chain_.size(); i-- > 0;) {
    Block& block = blocks_[chain_[i]];
    block.last_ms = std::max(now_ms, block.uses == 0 ? now_ms : block.last_ms);
    block.first_ms = std::min(block.first_ms, now_ms);
    ++block.uses;
    stack_.Touch(chain_[i]);
  }
}

double TraceProfile::span_s() const { return static_cast<double>(newest_ms_ - first_ms_) / 1e3; }

double TraceProfile::Ratio(uint64_t hits) const {
  return references_ == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(references_);
}

double TraceProfile::HitRatio(uint64_t lru_blocks) const {
  uint64_t hits = 0;
  for (uint64_t d = 1; d <= lru_blocks && d < at_distance_.size(); ++d) hits += at_distance_[d];
  return Ratio(hits);
}

uint64_t TraceProfile::BlocksForShare(double share) const {
  const auto wanted = static_cast<uint64_t>(std::ceil(share * static_cast<double>(hits_)));
  uint64_t hits = 0;
  for (uint64_t d = 1; d < at_distance_.size(); ++d) {
    hits += at_distance_[d];
    if (hits >= wanted && hits > 0) return d;
  }
  return 0;
}

std::array<TraceProfile::TemperatureShare, kTemperatures> TraceProfile::Temperatures() const {
  std::array<TemperatureShare, kTemperatures> shares{};
  for (const Block& block : blocks_) {
    Temperature temperature = Temperature::kOnce;
    if (block.uses > 1) {
      const uint64_t gap = static_cast<uint64_t>(block.last_ms - block.first_ms) / (block.uses - 1);
      temperature = gap <= options_.hot_ms    ? Temperature::kHot
                    : gap <= options_.warm_ms ? Temperature::kWarm
                                              : Temperature::kCold;
    }
    TemperatureShare& share = shares[static_cast<size_t>(temperature)];
    ++share.blocks;
    share.reuses += block.uses - 1;
  }
  return shares;
}

uint64_t TraceProfile::BlocksUsedOnce() const {
  return static_cast<uint64_t>(
      std::count_if(blocks_.begin(), blocks_.end(), [](const Block& block) { return block.uses == 1; }));
}

double TraceProfile::HottestShare(double share) const {
  std::vector<uint64_t> uses;
  uses.reserve(blocks_.size());
  for (const Block& block : blocks_) uses.push_back(block.uses);
  const auto count = std::min(uses.size(), static_cast<size_t>(share * static_cast<double>(uses.size())));
  std::nth_element(uses.begin(), uses.begin() + static_cast<std::ptrdiff_t>(count), uses.end(),
                   std::greater<>());
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += uses[i];
  return Ratio(sum);
}

}  // namespace cistern
