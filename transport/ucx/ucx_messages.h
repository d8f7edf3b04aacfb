#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/messages.h"

// What goes over UCX besides frames: the header of each active message, and the announcement of registered
// memory that rides along with HELLO and HELLO_ACK. Both come from a peer and are decoded with limits.
namespace cistern {

// Header of an active message, fixed little-endian:
//   offset 0  u32 magic     'C' 'S' 'T' 'U'
//          4  u32 kind      AmKind
//          8  u64 sequence  counts a connection's messages in one direction, from 0
// A kFrame has the frame's own header (frame.h) behind it and the body as its data; a kChunk has nothing, and
// the next bytes of the last frame's payload as its data. UCX keeps no order between messages of different
// size: the sequence does.
enum class AmKind : uint32_t { kFrame = 1, kChunk = 2 };
struct AmHeader {
  AmKind kind{};
  uint64_t sequence = 0;
};
inline constexpr uint32_t kAmMagic = 0x55545343;
inline constexpr size_t kAmHeaderBytes = 16;
void EncodeAmHeader(const AmHeader& header, std::byte* out /* kAmHeaderBytes */);
// InvalidArgument: too short, magic, unknown kind.
absl::StatusOr<AmHeader> DecodeAmHeader(absl::Span<const std::byte> bytes);

inline constexpr size_t kRkeyBytesMax = 1024;              // Of one packed key.
inline constexpr uint32_t kChunksPerRegionMax = 1024;      // 2 TiB in pieces of 2 GiB.
inline constexpr size_t kAnnouncementBytesMax = 1u << 20;  // Together with its frame's body.

// One piece of a region as its owner registered it.
struct AnnouncedChunk {
  uint64_t address = 0;  // In the owner's process.
  uint64_t bytes = 0;
  std::vector<std::byte> rkey;
};
struct AnnouncedRegion {
  uint32_t id = 0;
  std::vector<AnnouncedChunk> chunks;  // In the order of their offsets, without gaps.
};
// Behind the body of HELLO (the put window) and of HELLO_ACK (the arenas of the reader's trust level, in the
// order of HelloAck::regions).
struct Announcement {
  std::vector<AnnouncedRegion> regions;
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};

}  // namespace cistern
