#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cache_node/disk/disk.h"
#include "cache_node/tail_mark.h"
#include "core/ids.h"
#include "core/part.h"
#include "core/retention.h"

// What stands in an extent (docs/disk_format.md): a header page, records one behind the other, and, once
// sealed, entries and a trailer page at its end. All integers little-endian. Every page carries a CRC-32C of
// itself, and whatever does not decode is refused: an extent is bytes from outside.
namespace cistern {

inline constexpr uint32_t kExtentBytes = 64u << 20;
inline constexpr uint32_t kPageBytes = kDiskAlign;
inline constexpr uint32_t kPartAlign = 64;  // Of parts inside a record.
inline constexpr uint32_t kPartsPerRecordMax = 240;
inline constexpr uint32_t kRecordPayloadMax =
    kPartBytesMax;  // A block with more bytes takes several records.
inline constexpr uint32_t kRecordBytesMax = kPageBytes + kRecordPayloadMax;
inline constexpr uint32_t kEntriesPerExtentMax = 32768;
inline constexpr uint32_t kDropsPerRecordMax = 32768;  // Hashes in one record of drops: 1 MiB.
inline constexpr uint16_t kDiskFormatVersion = 2;      // Written. 1 is read too: it has no tails.

// Of a record: later is greater.
constexpr uint64_t GenerationOf(uint64_t life, uint32_t page) { return life << 16 | page; }

constexpr uint32_t RoundUpTo(uint32_t value, uint32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// What extents say of a record's retention: that it has an end, which the manifest knows, and its pin.
inline constexpr uint16_t kRetentionTimed = 1;
constexpr uint16_t RetentionFlags(const Retention& retention) {
  return static_cast<uint16_t>((retention.ttl_s > 0 ? kRetentionTimed : 0) |
                               static_cast<uint16_t>(retention.pin) << 1);
}
// Anything but the known pins is none.
constexpr PinKind PinOf(uint16_t flags) {
  return (flags >> 1) <= kPinKindMax ? static_cast<PinKind>(flags >> 1) : PinKind::kNone;
}
// What of it an index entry keeps: two bits of pin are enough for those.
constexpr uint16_t KnownRetention(uint16_t flags) {
  return static_cast<uint16_t>((flags & kRetentionTimed) | static_cast<uint16_t>(PinOf(flags)) << 1);
}

// One use of an extent, from its opening until it is free again. Every page of a record names it, so that
// what an earlier use left in the same place is known as such, and so that no part's bytes can pass for a
// record: a writer cannot know the nonce.
struct ExtentUse {
  uint64_t life = 0;  // Grows with every use of any extent of the log.
  uint64_t nonce = 0;
  friend bool operator==(const ExtentUse&, const ExtentUse&) = default;
};

// The first page.
struct ExtentHeader {
  uint32_t extent = 0;
  ExtentUse use;
  bool free = false;
};
void EncodeExtentHeader(const ExtentHeader& header, std::byte* page);
// DataLoss naming what is wrong; FailedPrecondition: a whole page, of a format that this node does not know.
absl::StatusOr<ExtentHeader> DecodeExtentHeader(const std::byte* page);

enum class RecordKind : uint16_t {
  kBlock = 1,    // Parts of one block.
  kDrop = 2,     // Payload: hashes of blocks of which everything older is gone.
  kDropAll = 3,  // Everything older is gone.
};
// Older than what: a record of drops that was written again says so in the fingerprint's place, which is 0 in
// one that speaks of all before itself.
constexpr uint64_t DroppedBefore(uint64_t fingerprint, uint64_t generation) {
  return fingerprint == 0 || fingerprint > generation ? generation : fingerprint;
}

// A record is a header page and a payload, padded to whole pages.
struct RecordHeader {
  struct Part {
    PartCoord coord;
    uint32_t at = 0;  // In the payload; a multiple of kPartAlign.
    uint32_t length = 0;
    uint32_t crc = 0;
  };
  RecordKind kind = RecordKind::kBlock;
  uint32_t extent = 0;
  uint32_t page = 0;  // Where it stands in the extent, in pages.
  ExtentUse use;      // Life and page together are the record's generation: later is greater.
  BlockKey block;
  LayoutId layout;
  uint32_t depth = 0;      // Of the block in its chain, 0 where it was not known.
  TailMark tail;           // All parts of a record are of the block, or all of the tail behind it.
  uint16_t retention = 0;  // RetentionFlags, of all parts.
  std::vector<Part> parts;

  uint32_t PayloadBytes() const { return parts.empty() ? 0 : parts.back().at + parts.back().length; }
  uint32_t RecordBytes() const { return kPageBytes + RoundUpTo(PayloadBytes(), kPageBytes); }
};
void EncodeRecordHeader(const RecordHeader& header, std::byte* page);
// DataLoss naming what is wrong. The record lies inside its extent, its parts in order inside the payload.
absl::StatusOr<RecordHeader> DecodeRecordHeader(const std::byte* page);
// kOk when every part's bytes have their CRC. payload: PayloadBytes() of the record.
bool PayloadIsWhole(const RecordHeader& header, const std::byte* payload);

// What the footer of a sealed extent says of one part, so that a start need not read the records.
struct FooterEntry {
  RecordKind kind = RecordKind::kBlock;
  BlockKey block;
  LayoutId layout;
  PartCoord coord;
  uint32_t page = 0;     // Of its record.
  uint32_t data_at = 0;  // In the extent, bytes.
  uint32_t length = 0;
  uint32_t crc = 0;
  uint32_t depth = 0;
  TailMark tail;
  uint16_t retention = 0;  // RetentionFlags.
  friend bool operator==(const FooterEntry&, const FooterEntry&) = default;
};
inline constexpr uint32_t kFooterEntryBytes = 88;

struct FooterTrailer {
  uint32_t extent = 0;
  ExtentUse use;
  uint32_t entries = 0;
  uint32_t records = 0;
  uint32_t data_end =
      0;  // Records lie in [kPageBytes, data_end); behind it, up to the entries, there is nothing.
  uint32_t entries_crc = 0;
};
constexpr uint32_t FooterBytes(uint32_t entries) {
  return RoundUpTo(entries * kFooterEntryBytes, kPageBytes) + kPageBytes;
}
// Writes FooterBytes(entries.size()) that belong at the very end of the extent.
void EncodeFooter(FooterTrailer trailer, absl::Span<const FooterEntry> entries, std::byte* out);
// page: the extent's last.
absl::StatusOr<FooterTrailer> DecodeFooterTrailer(const std::byte* page);
// bytes: FooterBytes(trailer.entries) - kPageBytes, those before the trailer.
absl::StatusOr<std::vector<FooterEntry>> DecodeFooterEntries(const FooterTrailer& trailer,
                                                             const std::byte* bytes);
// The same in steps: the checksum, and `count` entries that begin at `bytes`, behind those in `entries`.
bool FooterIsWhole(const FooterTrailer& trailer, const std::byte* bytes);
absl::Status DecodeSomeEntries(const FooterTrailer& trailer, const std::byte* bytes, uint32_t count,
                               std::vector<FooterEntry>& entries);

// The entries that a record adds to its extent's footer.
void AppendEntries(const RecordHeader& header, std::vector<FooterEntry>& entries);

}  // namespace cistern
