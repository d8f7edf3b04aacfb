#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "transport/ucx/ucx_messages.h"

namespace cistern {

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  std::byte header[kAmHeaderBytes];
  EncodeAmHeader({.kind = AmKind::kChunk, .sequence = 7}, header);
  add("header", std::string(reinterpret_cast<const char*>(header), sizeof header));
  Announcement announcement;
  for (uint32_t id = 1; id <= 2; ++id) {
    AnnouncedRegion region{.id = id, .chunks = {}};
    for (uint32_t i = 0; i < id; ++i) {
      const std::vector<std::byte> key(20 + i, std::byte{5});
      region.chunks.push_back({.address = uint64_t{1} << 40 | i << 20, .bytes = 1u << 20, .rkey = key});
    }
    announcement.regions.push_back(std::move(region));
  }
  Bytes out;
  announcement.Encode(out);
  add("announcement", std::string(reinterpret_cast<const char*>(out.data()), out.size()));
}

}  // namespace cistern

// What a peer may send beside frames: the header of an active message, and an announcement of memory. What is
// accepted has to come out of the encoder as it came in.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const auto input = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data), bytes);
  if (const auto header = cistern::DecodeAmHeader(input); header.ok()) {
    std::byte out[cistern::kAmHeaderBytes];
    cistern::EncodeAmHeader(*header, out);
    if (!std::equal(out, out + sizeof(out), input.begin())) std::abort();
  }
  cistern::Announcement announcement;
  if (!announcement.Decode(input).ok()) {
    if (!announcement.regions.empty()) std::abort();
    return 0;
  }
  uint64_t total = 0;
  for (const auto& region : announcement.regions) {
    if (region.chunks.empty() || region.chunks.size() > cistern::kChunksPerRegionMax) std::abort();
    for (const auto& chunk : region.chunks) {
      if (chunk.address + chunk.bytes < chunk.address || chunk.rkey.size() > cistern::kRkeyBytesMax)
        std::abort();
      total += chunk.rkey.size();
    }
  }
  if (total > bytes) std::abort();
  cistern::Bytes again;
  announcement.Encode(again);
  if (again.size() != bytes || !std::equal(again.begin(), again.end(), input.begin())) std::abort();
  return 0;
}
