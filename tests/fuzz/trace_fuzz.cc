// Trace files: plain and compressed, both forms. A broken line costs that line, never the reader.
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <string>

#include "core/bytes.h"
#include "core/trace_reader.h"
#include "tests/fuzz/fuzz_target.h"

namespace cistern {
namespace {

constexpr const char* kPlain =
    "{\"timestamp\": 0, \"input_length\": 1030, \"output_length\": 5, \"hash_ids\": [0, 1, 2]}\n"
    "{\"timestamp\": 27, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [0, 7]}\n"
    "\n"
    "{\"timestamp\": 30, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [0, 4294967297]}\n";
constexpr const char* kDelta =
    "{\"session\":0,\"name\":\"trace_0374\",\"start_ms\":19453,\"block\":64,\"requests\":2}\n"
    "{\"s\":0,\"t\":0,\"in\":28542,\"out\":249,\"keep\":0,\"add\":[[1,445]],\"api_ms\":3710}\n"
    "{\"s\":0,\"t\":13000,\"in\":28785,\"out\":668,\"keep\":445,\"add\":[[446,4],[9,1]]}\n";

}  // namespace

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  add("plain", kPlain);
  add("delta", kDelta);
  std::string packed(ZSTD_compressBound(std::string_view(kPlain).size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), kPlain, std::string_view(kPlain).size(), 3));
  add("packed", packed);
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  static const int fd = memfd_create("trace", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  // A few bytes of a zstd frame may stand for 128 KiB of the same character, and a run of ids for 262,144 of
  // them. A little of that is enough: more finds nothing and takes all the time.
  constexpr size_t kPackedBytesMax = 512;
  constexpr uint64_t kIdsMax = 1u << 14;
  constexpr int kWindowLogMax = 20;
  if (size >= 4 && LoadLe<uint32_t>(reinterpret_cast<const std::byte*>(data)) == ZSTD_MAGICNUMBER)
    size = std::min(size, kPackedBytesMax);
  FUZZ_REQUIRE(ftruncate(fd, 0) == 0);
  FUZZ_REQUIRE(pwrite(fd, data, size, 0) == static_cast<ssize_t>(size));
  absl::StatusOr<std::unique_ptr<TraceReader>> reader = TraceReader::Open(path, kWindowLogMax);
  if (!reader.ok()) return 0;
  TraceRequest request;
  uint64_t last_line = 0, ids = 0;
  const auto broken = [&](uint64_t line, std::string_view why) {
    FUZZ_REQUIRE(line != 0);
    FUZZ_REQUIRE(!why.empty());
  };
  while ((*reader)->Next(request, broken)) {
    FUZZ_REQUIRE(request.line > last_line);
    FUZZ_REQUIRE(request.hash_ids.size() <= kTraceIdsPerRequestMax);
    FUZZ_REQUIRE(request.block_tokens != 0);
    last_line = request.line;
    ids += request.hash_ids.size();
    if (ids > kIdsMax) break;  // Deltas may repeat what they keep, too.
  }
  (void)(*reader)->status();
  return 0;
}
