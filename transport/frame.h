#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/bytes.h"

namespace cistern {

// One frame format on every path: a fixed 40-byte little-endian header, a body, and sometimes a payload of
// part bytes.
//   offset 0  u32 magic          'C' 'S' 'T' '1'
//          4  u8  version        of the wire; both sides agree on it in HELLO
//          5  u8  type           FrameType
//          6  u16 flags          FrameFlag bits
//          8  u64 request_id     chosen by the asker; a reply repeats it; 0 where no reply is due
//         16  u32 body_bytes     <= kBodyBytesMax
//         20  u32 pad_bytes      zeros behind the body, < kFrameAlignBytes
//         24  u64 payload_bytes  <= kPayloadBytesMax; pieces follow each other without gaps
//         32  u32 body_crc       CRC-32C of the body
//         36  u32 header_crc     CRC-32C of bytes 0..35
// Limits are checked on the header alone, before anything is allocated (F29, S13, F36).
inline constexpr uint32_t kFrameMagic = 0x31545343;
inline constexpr size_t kFrameHeaderBytes = 40;
// 2: an ack may offer a ring (kRingRegion), which kRing then answers; all else is as in 1.
inline constexpr uint8_t kWireVersionMin = 1;
inline constexpr uint8_t kWireVersionMax = 2;
inline constexpr uint8_t kRingWireVersion = 2;
inline constexpr size_t kBodyBytesMax = 4u << 20;
// Writers pad header and body to a multiple of this: the kernel copies a payload a quarter slower to an odd
// address (docs/performance.md). Readers take any padding below it.
inline constexpr uint32_t kFrameAlignBytes = 64;
inline constexpr uint64_t kPayloadBytesMax = 128u << 20;

// On the wire: never renumber, only append.
enum class FrameType : uint8_t {
  kHello = 1,
  kHelloAck = 2,
  kRefused = 3,
  kPing = 4,
  kPong = 5,
  kRing = 6,  // A client's first frame when the ack offered a ring; flags say whether it is used. No reply.
  kLookup = 10,
  kLookupReply = 11,
  kPlan = 12,
  kPlanReply = 13,
  kRead = 14,
  kReadReply = 15,
  kRenew = 16,
  kRenewReply = 17,
  kRelease = 18,  // No reply.
  kOffer = 20,
  kOfferReply = 21,
  kPut = 22,
  kPutReply = 23,
  kAbort = 24,  // No reply.
  kNote = 26,   // No reply. Only to nodes that have answered kFlagDetail.
  kAgree = 28,  // Only to nodes that have answered kFlagDetail.
  kAgreeReply = 29,
  kStats = 30,
  kStatsReply = 31,
  kDrop = 32,
  kDropReply = 33,  // Admin: drop parts by key, or all.
  kQuota = 34,
  kQuotaReply = 35,  // Admin: what a tenant may have; all tenants' figures.
  kError = 40,       // Answer to a request that could not be handled at all: body is ErrorBody.
};
enum FrameFlag : uint16_t {
  kFlagInline = 1,      // PLAN: send the parts' bytes with the reply (paths without one-sided reads).
  kFlagOneShot = 2,     // PLAN: no lease outlives the reply (only with kFlagInline).
  kFlagFromWindow = 4,  // PUT: bytes lie in the client's put window; pull them.
  kFlagProbe = 8,       // LOOKUP by an operator: counts in no hit counter.
  kFlagUseRing = 16,    // RING: all later frames of both sides go through it.
  kFlagDetail = 32,     // LOOKUP, PLAN: the reply tells which tails are whole, and why a block is missing.
  // PLAN: the asker takes an answer about the first blocks, and asks again for those behind them. PLAN_REPLY:
  // that is such an answer; what follows is on its way from a slower tier.
  kFlagInParts = 64,
};

struct FrameHeader {
  uint8_t version = kWireVersionMax;
  FrameType type{};
  uint16_t flags = 0;
  uint64_t request_id = 0;
  uint32_t body_bytes = 0;
  uint32_t pad_bytes = 0;
  uint64_t payload_bytes = 0;
  uint32_t body_crc = 0;
};

void EncodeFrameHeader(const FrameHeader& header, std::byte* out /* kFrameHeaderBytes */);
// InvalidArgument: magic, version, unknown type, limits; DataLoss: header_crc.
absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::Span<const std::byte> bytes);

}  // namespace cistern
