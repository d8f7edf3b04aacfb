#include "client/core/verify.h"

#include <array>
#include <cstring>

namespace cistern {

PartResult VerifyDescriptor(const ExpectedPart& expected, const PartDescriptor& descriptor) {
  if (descriptor.result != PartResult::kOk) return descriptor.result;
  if (descriptor.block != expected.block || descriptor.coord != expected.coord) return PartResult::kCorrupt;
  if (descriptor.length != expected.length) return PartResult::kLayout;
  if (descriptor.generation & 1) return PartResult::kStale;
  return PartResult::kOk;
}

PartResult VerifyPulled(const ExpectedPart& expected, const PartDescriptor& descriptor,
                        const PullResult& pulled, Nanos now, Nanos lease_end) {
  if (const PartResult r = VerifyDescriptor(expected, descriptor); r != PartResult::kOk) return r;
  if (pulled.result != PartResult::kOk) return pulled.result;
  // Time first: after the lease the slot may hold anything, and saying CORRUPT would blame the memory.
  if (now > lease_end) return PartResult::kLeaseExpired;
  const SlotTrailer& trailer = pulled.trailer;
  if (trailer.generation != descriptor.generation) return PartResult::kStale;
  if (std::memcmp(trailer.hash, expected.block.hash.bytes.data(), sizeof(trailer.hash)) != 0 ||
      trailer.fingerprint != expected.block.fingerprint || trailer.coord != expected.coord.Packed() ||
      trailer.length != expected.length || trailer.crc != descriptor.crc) {
    return PartResult::kCorrupt;
  }
  return pulled.crc == descriptor.crc ? PartResult::kOk : PartResult::kCorrupt;
}

PartResult VerifyInline(const ExpectedPart& expected, const PartDescriptor& descriptor, uint32_t piece_crc) {
  if (const PartResult r = VerifyDescriptor(expected, descriptor); r != PartResult::kOk) return r;
  return piece_crc == descriptor.crc ? PartResult::kOk : PartResult::kCorrupt;
}

int Badness(PartResult result) {
  // In the order of what a person should hear of first.
  static constexpr std::array<uint8_t, kPartResultMax + 1> kRank = {
      0,   // kOk
      2,   // kMiss
      6,   // kLayout
      12,  // kStale
      13,  // kLeaseExpired
      16,  // kCorrupt
      5,   // kNoSpace
      4,   // kBusy
      7,   // kTooLarge
      1,   // kExists
      15,  // kDenied
      9,   // kDeadline
      11,  // kPeerGone
      8,   // kCancelled
      14,  // kInvalid
      3,   // kWrongShard
      10,  // kBreakerOpen
  };
  const auto i = static_cast<uint8_t>(result);
  return i <= kPartResultMax ? kRank[i] : 17;
}

}  // namespace cistern
