#include "cache_node/disk/record.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint32_t kExtentMagic = 0x58545343;   // "CSTX"
constexpr uint32_t kRecordMagic = 0x52545343;   // "CSTR"
constexpr uint32_t kTrailerMagic = 0x46545343;  // "CSTF"
constexpr uint32_t kCrcAt = kPageBytes - 4;     // Every page's last word is the CRC of the rest.
constexpr uint32_t kRetentionAt = 124;
constexpr uint32_t kPartTableAt = 128;
constexpr uint32_t kPartRowBytes = 16;
static_assert(kPartTableAt + kPartsPerRecordMax * kPartRowBytes <= kCrcAt);
constexpr uint32_t kPagesPerExtent = kExtentBytes / kPageBytes;

// Writes fields one behind the other.
class Cursor {
 public:
  explicit Cursor(std::byte* to) : to_(to) {}
  template <typename T>
  void Put(T value) {
    StoreLe<T>(to_, value);
    to_ += sizeof(T);
  }
  template <size_t N>
  void Put(const std::array<uint8_t, N>& bytes) {
    std::memcpy(to_, bytes.data(), N);
    to_ += N;
  }

 private:
  std::byte* to_;
};
class View {
 public:
  explicit View(const std::byte* from) : from_(from) {}
  template <typename T>
  T Take() {
    const T value = LoadLe<T>(from_);
    from_ += sizeof(T);
    return value;
  }
  template <size_t N>
  void Take(std::array<uint8_t, N>& bytes) {
    std::memcpy(bytes.data(), from_, N);
    from_ += N;
  }

 private:
  const std::byte* from_;
};

void SealPage(std::byte* page) { StoreLe<uint32_t>(page + kCrcAt, Crc32c(page, kCrcAt)); }

absl::Status CheckPage(const std::byte* page, uint32_t magic, const char* what) {
  if (LoadLe<uint32_t>(page) != magic) return absl::DataLossError(absl::StrCat(what, ": not one"));
  if (LoadLe<uint32_t>(page + kCrcAt) != Crc32c(page, kCrcAt)) {
    return absl::DataLossError(absl::StrCat(what, ": checksum"));
  }
  const auto version = LoadLe<uint16_t>(page + 4);
  if (version == 0 || version > kDiskFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": format ", version, ", this version reads 1 to ", kDiskFormatVersion));
  }
  return absl::OkStatus();
}

bool IsKind(uint16_t kind) { return kind >= 1 && kind <= 3; }

}  // namespace

void EncodeExtentHeader(const ExtentHeader& header, std::byte* page) {
  std::memset(page, 0, kPageBytes);
  Cursor out(page);
  out.Put<uint32_t>(kExtentMagic);
  out.Put<uint16_t>(kDiskFormatVersion);
  out.Put<uint16_t>(header.free ? 1 : 0);
  out.Put<uint32_t>(header.extent);
  out.Put<uint32_t>(kExtentBytes);
  out.Put<uint64_t>(header.use.life);
  out.Put<uint64_t>(header.use.nonce);
  SealPage(page);
}

absl::StatusOr<ExtentHeader> DecodeExtentHeader(const std::byte* page) {
  if (const absl::Status good = CheckPage(page, kExtentMagic, "extent header"); !good.ok()) return good;
  View in(page + 6);
  ExtentHeader header;
  header.free = in.Take<uint16_t>() != 0;
  header.extent = in.Take<uint32_t>();
  if (in.Take<uint32_t>() != kExtentBytes) return absl::DataLossError("extent header: size");
  header.use.life = in.Take<uint64_t>();
  header.use.nonce = in.Take<uint64_t>();
  return header;
}

void EncodeRecordHeader(const RecordHeader& header, std::byte* page) {
  CISTERN_CHECK(header.parts.size() <= kPartsPerRecordMax);
  std::memset(page, 0, kPageBytes);
  Cursor out(page);
  out.Put<uint32_t>(kRecordMagic);
  out.Put<uint16_t>(kDiskFormatVersion);
  out.Put<uint16_t>(static_cast<uint16_t>(header.kind));
  out.Put<uint64_t>(header.use.life);
  out.Put<uint64_t>(header.use.nonce);
  out.Put<uint32_t>(header.extent);
  out.Put<uint32_t>(header.page);
  out.Put<uint32_t>(header.RecordBytes());
  out.Put<uint32_t>(header.PayloadBytes());
  out.Put<uint64_t>(header.block.fingerprint);
  out.Put(header.block.hash.bytes);
  out.Put(header.layout.bytes);
  out.Put<uint32_t>(header.depth);
  out.Put<uint32_t>(static_cast<uint32_t>(header.parts.size()));
  out.Put<uint32_t>(header.tail.Packed());
  StoreLe<uint16_t>(page + kRetentionAt, header.retention);
  Cursor rows(page + kPartTableAt);
  for (const RecordHeader::Part& part : header.parts) {
    rows.Put<uint32_t>(part.coord.Packed());
    rows.Put<uint32_t>(part.at);
    rows.Put<uint32_t>(part.length);
    rows.Put<uint32_t>(part.crc);
  }
  SealPage(page);
}

absl::StatusOr<RecordHeader> DecodeRecordHeader(const std::byte* page) {
  if (const absl::Status good = CheckPage(page, kRecordMagic, "record header"); !good.ok()) return good;
  View in(page + 6);
  RecordHeader header;
  const auto kind = in.Take<uint16_t>();
  if (!IsKind(kind)) return absl::DataLossError(absl::StrCat("record header: kind ", kind));
  header.kind = static_cast<RecordKind>(kind);
  header.use.life = in.Take<uint64_t>();
  header.use.nonce = in.Take<uint64_t>();
  header.extent = in.Take<uint32_t>();
  header.page = in.Take<uint32_t>();
  const auto record_bytes = in.Take<uint32_t>();
  const auto payload_bytes = in.Take<uint32_t>();
  header.block.fingerprint = in.Take<uint64_t>();
  in.Take(header.block.hash.bytes);
  in.Take(header.layout.bytes);
  header.depth = in.Take<uint32_t>();
  const auto count = in.Take<uint32_t>();
  if (count > kPartsPerRecordMax)
    return absl::DataLossError(absl::StrCat("record header: ", count, " parts"));
  header.tail = TailMark::Unpack(in.Take<uint32_t>());
  header.retention = LoadLe<uint16_t>(page + kRetentionAt);
  View rows(page + kPartTableAt);
  uint64_t end = 0;
  for (uint32_t i = 0; i < count; ++i) {
    RecordHeader::Part part;
    part.coord = PartCoord::Unpack(rows.Take<uint32_t>());
    part.at = rows.Take<uint32_t>();
    part.length = rows.Take<uint32_t>();
    part.crc = rows.Take<uint32_t>();
    if (part.at % kPartAlign != 0 || part.at < end || part.length == 0 || part.length > kPartBytesMax) {
      return absl::DataLossError("record header: part table");
    }
    end = uint64_t{part.at} + part.length;
    if (end > kRecordPayloadMax) return absl::DataLossError("record header: payload too long");
    header.parts.push_back(part);
  }
  if (end != payload_bytes || header.RecordBytes() != record_bytes) {
    return absl::DataLossError("record header: lengths do not add up");
  }
  if (header.page == 0 || uint64_t{header.page} * kPageBytes + record_bytes > kExtentBytes - kPageBytes) {
    return absl::DataLossError("record header: outside of its extent");
  }
  return header;
}

bool PayloadIsWhole(const RecordHeader& header, const std::byte* payload) {
  for (const RecordHeader::Part& part : header.parts) {
    if (Crc32c(payload + part.at, part.length) != part.crc) return false;
  }
  return true;
}

void EncodeFooter(FooterTrailer trailer, absl::Span<const FooterEntry> entries, std::byte* out) {
  CISTERN_CHECK(entries.size() <= kEntriesPerExtentMax);
  const uint32_t bytes = FooterBytes(static_cast<uint32_t>(entries.size()));
  std::memset(out, 0, bytes);
  Cursor rows(out);
  for (const FooterEntry& entry : entries) {
    rows.Put<uint16_t>(static_cast<uint16_t>(entry.kind));
    rows.Put<uint16_t>(entry.retention);
    rows.Put<uint32_t>(entry.coord.Packed());
    rows.Put<uint64_t>(entry.block.fingerprint);
    rows.Put(entry.block.hash.bytes);
    rows.Put(entry.layout.bytes);
    rows.Put<uint32_t>(entry.page);
    rows.Put<uint32_t>(entry.data_at);
    rows.Put<uint32_t>(entry.length);
    rows.Put<uint32_t>(entry.crc);
    rows.Put<uint32_t>(entry.depth);
    rows.Put<uint32_t>(entry.tail.Packed());
  }
  const uint32_t entries_bytes = bytes - kPageBytes;
  std::byte* page = out + entries_bytes;
  Cursor last(page);
  last.Put<uint32_t>(kTrailerMagic);
  last.Put<uint16_t>(kDiskFormatVersion);
  last.Put<uint16_t>(0);
  last.Put<uint32_t>(trailer.extent);
  last.Put<uint32_t>(static_cast<uint32_t>(entries.size()));
  last.Put<uint64_t>(trailer.use.life);
  last.Put<uint64_t>(trailer.use.nonce);
  last.Put<uint32_t>(trailer.records);
  last.Put<uint32_t>(trailer.data_end);
  last.Put<uint32_t>(Crc32c(out, entries_bytes));
  SealPage(page);
}

absl::StatusOr<FooterTrailer> DecodeFooterTrailer(const std::byte* page) {
  if (const absl::Status good = CheckPage(page, kTrailerMagic, "footer"); !good.ok()) return good;
  View in(page + 8);
  FooterTrailer trailer;
  trailer.extent = in.Take<uint32_t>();
  trailer.entries = in.Take<uint32_t>();
  trailer.use.life = in.Take<uint64_t>();
  trailer.use.nonce = in.Take<uint64_t>();
  trailer.records = in.Take<uint32_t>();
  trailer.data_end = in.Take<uint32_t>();
  trailer.entries_crc = in.Take<uint32_t>();
  if (trailer.entries > kEntriesPerExtentMax || trailer.records > kPagesPerExtent ||
      trailer.data_end % kPageBytes != 0 || trailer.data_end < kPageBytes ||
      trailer.data_end > kExtentBytes - FooterBytes(trailer.entries)) {
    return absl::DataLossError("footer: limits");
  }
  return trailer;
}

bool FooterIsWhole(const FooterTrailer& trailer, const std::byte* bytes) {
  return Crc32c(bytes, FooterBytes(trailer.entries) - kPageBytes) == trailer.entries_crc;
}

absl::StatusOr<std::vector<FooterEntry>> DecodeFooterEntries(const FooterTrailer& trailer,
                                                             const std::byte* bytes) {
  if (!FooterIsWhole(trailer, bytes)) return absl::DataLossError("footer entries: checksum");
  std::vector<FooterEntry> entries;
  entries.reserve(trailer.entries);
  CISTERN_RETURN_IF_ERROR(DecodeSomeEntries(trailer, bytes, trailer.entries, entries));
  return entries;
}

absl::Status DecodeSomeEntries(const FooterTrailer& trailer, const std::byte* bytes, uint32_t count,
                               std::vector<FooterEntry>& entries) {
  View in(bytes);
  for (; count > 0; --count) {
    FooterEntry& entry = entries.emplace_back();
    const auto kind = in.Take<uint16_t>();
    entry.retention = in.Take<uint16_t>();
    entry.coord = PartCoord::Unpack(in.Take<uint32_t>());
    entry.block.fingerprint = in.Take<uint64_t>();
    in.Take(entry.block.hash.bytes);
    in.Take(entry.layout.bytes);
    entry.page = in.Take<uint32_t>();
    entry.data_at = in.Take<uint32_t>();
    entry.length = in.Take<uint32_t>();
    entry.crc = in.Take<uint32_t>();
    entry.depth = in.Take<uint32_t>();
    entry.tail = TailMark::Unpack(in.Take<uint32_t>());
    const uint64_t begin = uint64_t{entry.page} * kPageBytes;
    const bool empty_part = static_cast<RecordKind>(kind) == RecordKind::kBlock && entry.length == 0;
    if (!IsKind(kind) || entry.page == 0 || entry.data_at < begin + kPageBytes ||
        entry.data_at % kPartAlign != 0 || empty_part || entry.length > kPartBytesMax ||
        uint64_t{entry.data_at} + entry.length > trailer.data_end ||
        uint64_t{entry.data_at} + entry.length - begin > kRecordBytesMax) {
      return absl::DataLossError("footer entries: limits");
    }
    entry.kind = static_cast<RecordKind>(kind);
  }
  return absl::OkStatus();
}

void AppendEntries(const RecordHeader& header, std::vector<FooterEntry>& entries) {
  const uint32_t data = (header.page + 1) * kPageBytes;
  FooterEntry entry;
  entry.kind = header.kind;
  entry.block = header.block;
  entry.layout = header.layout;
  entry.page = header.page;
  entry.depth = header.depth;
  entry.tail = header.tail;
  entry.retention = header.retention;
  if (header.parts.empty()) entry.data_at = data, entries.push_back(entry);  // kDropAll has no payload.
  for (const RecordHeader::Part& part : header.parts) {
    entry.coord = part.coord;
    entry.data_at = data + part.at;
    entry.length = part.length;
    entry.crc = part.crc;
    entries.push_back(entry);
  }
}

}  // namespace cistern
