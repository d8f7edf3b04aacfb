#include "transport/ucx/ucx_messages.h"

#include "absl/strings/str_cat.h"
#include "core/bytes.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

namespace cistern {

void EncodeAmHeader(const AmHeader& header, std::byte* out) {
  StoreLe<uint32_t>(out, kAmMagic);
  StoreLe<uint32_t>(out + 4, static_cast<uint32_t>(header.kind));
  StoreLe<uint64_t>(out + 8, header.sequence);
}

absl::StatusOr<AmHeader> DecodeAmHeader(absl::Span<const std::byte> bytes) {
  if (bytes.size() < kAmHeaderBytes) return absl::InvalidArgumentError("active message: header cut off");
  if (LoadLe<uint32_t>(bytes.data()) != kAmMagic)
    return absl::InvalidArgumentError("active message: not of cistern");
  const auto kind = LoadLe<uint32_t>(bytes.data() + 4);
  if (kind != static_cast<uint32_t>(AmKind::kFrame) && kind != static_cast<uint32_t>(AmKind::kChunk)) {
    return absl::InvalidArgumentError(absl::StrCat("active message: no kind ", kind));
  }
  return AmHeader{static_cast<AmKind>(kind), LoadLe<uint64_t>(bytes.data() + 8)};
}

void Announcement::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(static_cast<uint32_t>(regions.size()));
  for (const AnnouncedRegion& region : regions) {
    w.Put(region.id);
    w.Put(static_cast<uint32_t>(region.chunks.size()));
    for (const AnnouncedChunk& chunk : region.chunks) {
      w.Put(chunk.address);
      w.Put(chunk.bytes);
      w.Put(static_cast<uint32_t>(chunk.rkey.size()));
      w.PutRaw(chunk.rkey.data(), chunk.rkey.size());
    }
  }
}

absl::Status Announcement::Decode(ByteView body) {
  constexpr size_t kRegionBytesMin = 8;
  constexpr size_t kChunkBytesMin = 20;
  WireReader r("announcement", body);
  regions.clear();
  const uint32_t count = r.GetCount("regions", kRegionsPerPeerMax, kRegionBytesMin);
  for (uint32_t i = 0; i < count && r.ok(); ++i) {
    AnnouncedRegion& region = regions.emplace_back();
    region.id = r.Get<uint32_t>("id");
    for (uint32_t other = 0; other < i; ++other) {
      if (regions[other].id == region.id) r.Fail("id", "twice");
    }
    const uint32_t chunks = r.GetCount("chunks", kChunksPerRegionMax, kChunkBytesMin);
    uint64_t total = 0;
    for (uint32_t c = 0; c < chunks && r.ok(); ++c) {
      AnnouncedChunk& chunk = region.chunks.emplace_back();
      chunk.address = r.Get<uint64_t>("address");
      chunk.bytes = r.Get<uint64_t>("bytes");
      // Neither an end nor a sum may wrap (F36).
      if (chunk.bytes == 0 || chunk.bytes > UINT64_MAX - chunk.address || chunk.bytes > UINT64_MAX - total) {
        r.Fail("bytes", "none, or beyond the end of memory");
      }
      total += chunk.bytes;
      const auto rkey_bytes = r.Get<uint32_t>("rkey");
      if (rkey_bytes == 0 || rkey_bytes > kRkeyBytesMax || rkey_bytes > r.left()) {
        r.Fail("rkey", absl::StrCat(rkey_bytes, " bytes, at most ", kRkeyBytesMax));
        break;
      }
      chunk.rkey.resize(rkey_bytes);
      r.GetRaw("rkey", chunk.rkey.data(), rkey_bytes);
    }
    if (r.ok() && region.chunks.empty()) r.Fail("chunks", "none");
  }
  absl::Status status = r.Finish();
  if (!status.ok()) regions.clear();
  return status;
}

}  // namespace cistern
