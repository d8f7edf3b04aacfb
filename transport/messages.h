#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/ids.h"
#include "core/miss_reason.h"
#include "core/part.h"
#include "core/retention.h"
#include "transport/frame.h"

// Bodies of the frames: structs with an Encode (appends to `out`) and a Decode that checks every length and
// limit before it allocates, refuses trailing bytes, and names the field that is wrong. Decode reuses the
// vectors' capacity, so a warm path does not allocate. All integers little-endian.
namespace cistern {

using Bytes = std::vector<std::byte>;
using ByteView = absl::Span<const std::byte>;

inline constexpr uint32_t kBlocksPerRequestMax = 16384;
inline constexpr uint32_t kCoordsPerRequestMax = 256;
inline constexpr uint32_t kPartsPerRequestMax = 65536;   // blocks x coords
inline constexpr uint32_t kPartSizesPerRequestMax = 32;  // Different ones among coord_bytes.
inline constexpr uint32_t kNotesPerRequestMax = 1024;    // Of each kind.
inline constexpr uint32_t kRegionsPerPeerMax = 64;
inline constexpr size_t kKeyAlgorithmBytesMax = 64;
inline constexpr size_t kWireNodeIdBytesMax = 128;
inline constexpr size_t kRefusalBytesMax = 512;

struct RegionInfo {
  uint32_t id = 0;
  uint64_t bytes = 0;
};

struct Hello {
  uint16_t version_min = kWireVersionMin;
  uint16_t version_max = kWireVersionMax;
  std::string key_algorithm;  // kKeyAlgorithm
  ClusterId cluster;
  std::string ticket;         // Sealed; <= kTicketBytesMax.
  uint64_t client_id = 0;     // Random per client object.
  bool wants_map = false;     // Unix only: hand over arenas' memfds.
  uint64_t window_bytes = 0;  // Size of the put window whose memfd comes with this frame; 0: none.
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
  // Only what comes first in every version's HELLO: version_min, version_max, key_algorithm.
  absl::Status DecodeVersions(ByteView body);
};
struct HelloAck {
  uint16_t version = kWireVersionMax;
  std::string node_id;
  uint64_t incarnation = 0;
  uint32_t shard = 0;
  uint32_t shards = 1;
  std::vector<RegionInfo>
      regions;  // Their memfds come with this frame on `map`; kRingRegion may be the last.
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
struct Refused {
  absl::StatusCode code = absl::StatusCode::kPermissionDenied;
  std::string message;  // Names both versions, both algorithms, ... <= 512 bytes.
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
using ErrorBody = Refused;

// Consecutive blocks of the request that lie in one run.
struct RunRef {
  BlockHash run_key;
  uint32_t first_index = 0;  // Index in the run of its first block named here.
  uint32_t count = 0;
};
// The blocks of one chain that one shard owns, in chain order. LOOKUP, PLAN and OFFER share it.
struct ChainRequest {
  LayoutId layout;
  uint64_t plan_id = 0;  // PLAN: chosen by the client, unique among its plans, not 0.
  uint32_t ttl_ms = 0;   // PLAN: lease wanted.
  uint32_t deadline_ms =
      0;  // What is left of the caller's time; 0: none told. OFFER: puts are dropped after it.
  uint32_t part_bytes = 0;
  uint32_t depth = 0;             // Chain depth of the first block named (eviction order).
  std::vector<PartCoord> coords;  // Parts wanted of every block; a block counts only when all are here.
  std::vector<RunRef> runs;       // Counts add up to blocks.size().
  std::vector<BlockKey> blocks;
  // What layouts with several part sizes and tails need. On the wire only where it is used, behind all else,
  // so that a request without it is what it always was (F61).
  std::vector<uint32_t> coord_bytes{};  // Bytes of a part, for each of `coords`; empty: part_bytes for all.
  uint32_t tail_parts =
      0;  // Not 0: about the tail at the end of the one block named, whole with so many parts.
  bool junction = false;  // OFFER of a tail: prompts go on differently from here.
  // OFFER: how long the parts are wanted; plain: as the tenant's limits say. Behind the fields above, and
  // only to nodes of this version: earlier ones refuse it.
  Retention retention{};
  uint32_t BytesOf(size_t coord) const { return coord_bytes.empty() ? part_bytes : coord_bytes[coord]; }
  uint64_t BlockBytes() const;
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};

// What LOOKUP_REPLY and PLAN_REPLY say besides when asked with kFlagDetail.
struct ReplyDetail {
  bool present = false;
  MissReason why = MissReason::kNone;  // Of block `hit_blocks`.
  std::vector<uint64_t> tails{};       // Bit i: the tail at the end of the request's block i is whole.
};
struct LookupReply {
  uint32_t hit_blocks = 0;  // Leading blocks of the request that are here.
  PartResult stopped_by =
      PartResult::kOk;  // Why block `hit_blocks` does not count (MISS, LAYOUT); kOk when all do.
  uint64_t incarnation = 0;
  ReplyDetail detail{};
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};

// Where one leased part lies, and what it must turn out to be after the transfer.
struct PartDescriptor {
  PartResult result = PartResult::kMiss;
  uint32_t region = 0;
  uint32_t length = 0;
  uint32_t crc = 0;
  uint64_t offset = 0;          // In the region.
  uint64_t trailer_offset = 0;  // SlotTrailer, in the same region.
  uint64_t generation = 0;
  BlockKey block;  // As stored, not as asked: the reader compares.
  PartCoord coord;
};
// PLAN_REPLY and READ_REPLY. With kFlagInline (or READ) the bytes of all kOk parts follow as payload, in
// order.
struct PlanReply {
  uint32_t hit_blocks = 0;
  PartResult stopped_by = PartResult::kOk;
  uint64_t plan_id = 0;
  uint32_t ttl_ms = 0;  // Granted; the client counts it from before it sent.
  uint64_t incarnation = 0;
  std::vector<PartDescriptor> parts;  // hit_blocks x coords, block-major. READ_REPLY: as asked.
  ReplyDetail detail{};
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
struct ReadRequest {
  uint64_t plan_id = 0;
  uint32_t deadline_ms = 0;
  std::vector<uint32_t> parts;  // Indices into the plan's parts.
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
struct RenewRequest {
  uint64_t plan_id = 0;
  uint32_t ttl_ms = 0;
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
struct RenewReply {
  PartResult result = PartResult::kOk;  // kLeaseExpired: gone, plan again.
  uint32_t ttl_ms = 0;
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
// RELEASE (plan ids) and ABORT (put ids).
struct IdList {
  std::vector<uint64_t> ids;
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};

struct OfferReply {
  struct Slot {
    uint64_t put_id = 0;                  // Names slot and generation; one use. 0 unless result is kOk.
    PartResult result = PartResult::kOk;  // kOk: send it. kExists: have it. kNoSpace, kTooLarge, kLayout, ...
  };
  std::vector<Slot> slots;  // blocks x coords, block-major.
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
struct PutRequest {
  struct Part {
    uint64_t put_id = 0;
    uint64_t window_offset = 0;  // With kFlagFromWindow.
    uint32_t length = 0;
    uint32_t crc = 0;
  };
  std::vector<Part> parts;  // Without kFlagFromWindow their bytes follow as payload, in order.
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
struct PutReply {
  std::vector<PartResult> results;  // kOk: visible.
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
struct DropRequest {
  bool all = false;               // Everything that is not leased.
  std::vector<BlockHash> blocks;  // Or these, every part of them.
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
struct DropReply {
  uint64_t dropped_parts = 0;
  uint64_t kept_parts = 0;  // Leased or being written.
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
inline constexpr size_t kTenantNameBytesMax = 257;  // TENANT, or TENANT/NAMESPACE.
inline constexpr uint32_t kTenantsPerReplyMax = 1024;
struct QuotaLimits {
  uint64_t quota_bytes = 0;  // In RAM of the shard; 0: no limit.
  uint64_t floor_bytes = 0;  // Others take nothing from it below this.
  bool reject_when_full = false;
  Retention retention{};  // Of puts that name none.
  friend bool operator==(const QuotaLimits&, const QuotaLimits&) = default;
};
// Sets a tenant's limits; without a tenant only asks.
struct QuotaRequest {
  std::string tenant{};
  QuotaLimits limits{};
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
struct QuotaReply {
  struct Row {
    std::string tenant{};
    QuotaLimits limits{};
    uint64_t used_bytes = 0, pinned_bytes = 0;
    uint64_t evicted_parts = 0, evicted_bytes = 0, rejected_parts = 0, rejected_bytes = 0;
  };
  std::vector<Row> rows;
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
// NOTE, without a reply: what a client knows of a chain that one node cannot know.
struct NoteRequest {
  // The chain has a newer tail; this block's goes first, unless prompts part here.
  struct Superseded {
    BlockHash block;
    uint64_t successor = 0;  // Prefix of the next block's hash, as the prompt goes on.
  };
  // Parts of a plan from this one on cannot be reached: a block before them is nowhere.
  struct Stranded {
    uint64_t plan_id = 0;
    uint64_t first_part = 0;
  };
  std::vector<Superseded> superseded;
  std::vector<Stranded> stranded;
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
// AGREE: how many tokens a request hits, one answer for all its ranks (F50). The shard that owns the chain's
// first run remembers the first proposal.
struct AgreeRequest {
  BlockHash request;     // Names request and chain.
  bool propose = false;  // False: only asks.
  uint64_t tokens = 0;
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
struct AgreeReply {
  uint64_t tokens = 0;
  uint32_t asked = 0;  // Ranks that have proposed; 0: nothing is remembered.
  uint64_t incarnation = 0;
  void Encode(Bytes& out) const;
  absl::Status Decode(ByteView body);
};
// STATS has no body; STATS_REPLY's body is a serialised cistern.proto.NodeStats.

}  // namespace cistern
