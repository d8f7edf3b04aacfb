// Pages of the disk log, as a damaged or hostile disk may give them; their checksums are made right first, so
// that what is behind them is reached.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "cache_node/disk/record.h"
#include "core/crc32c.h"
#include "tests/fuzz/fuzz_target.h"

namespace cistern {

constexpr uint32_t kEntriesTried = 128;

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  std::vector<std::byte> page(kPageBytes);
  const auto take = [&](const char* name) {
    add(name, std::string(reinterpret_cast<const char*>(page.data()), 256));
  };
  EncodeExtentHeader({.extent = 3, .use = {.life = 9, .nonce = 10}}, page.data());
  take("extent");
  RecordHeader header;
  header.page = 1;
  for (uint32_t i = 0; i < 3; ++i) {
    header.parts.push_back({.coord = PartCoord::Unpack(i), .at = i * 128, .length = 100, .crc = i});
  }
  EncodeRecordHeader(header, page.data());
  take("record");
  EncodeFooter({.extent = 3, .use = {.life = 9, .nonce = 10}, .records = 1, .data_end = kPageBytes}, {},
               page.data());
  take("footer");
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  std::vector<std::byte> page(kPageBytes), again(kPageBytes);
  std::memcpy(page.data(), data, std::min<size_t>(size, kPageBytes));
  StoreLe<uint32_t>(page.data() + kPageBytes - 4, Crc32c(page.data(), kPageBytes - 4));
  (void)DecodeExtentHeader(page.data());
  if (const auto record = DecodeRecordHeader(page.data()); record.ok()) {
    FUZZ_REQUIRE(uint64_t{record->page} * kPageBytes + record->RecordBytes() <= kExtentBytes);
    EncodeRecordHeader(*record, again.data());
    const auto back = DecodeRecordHeader(again.data());
    FUZZ_REQUIRE(back.ok() && back->block == record->block && back->parts.size() == record->parts.size());
  }
  if (const auto trailer = DecodeFooterTrailer(page.data()); trailer.ok()) {
    FUZZ_REQUIRE(FooterBytes(trailer->entries) <= kExtentBytes);
    // More entries of the same bytes are the same entries, and take most of the time.
    FooterTrailer good = *trailer;
    good.entries = std::min(good.entries, kEntriesTried);
    std::vector<std::byte> entries(FooterBytes(good.entries));
    for (size_t at = 0; at < entries.size() && size > 0; at += size) {
      std::memcpy(entries.data() + at, data, std::min(size, entries.size() - at));
    }
    good.entries_crc = Crc32c(entries.data(), entries.size() - kPageBytes);
    if (const auto list = DecodeFooterEntries(good, entries.data()); list.ok()) {
      for (const FooterEntry& entry : *list) FUZZ_REQUIRE(entry.data_at + entry.length <= good.data_end);
    }
  }
  return 0;
}
