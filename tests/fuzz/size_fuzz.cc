// Sizes as people type them.
#include <string>

#include "core/size.h"
#include "tests/fuzz/fuzz_target.h"

namespace cistern {

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  int i = 0;
  for (const char* text :
       {"0", "4096", "64K", "512MiB", "3G", "1TB", "18446744073709551615", "16777215T", "1k"}) {
    add("size_" + std::to_string(i++), text);
  }
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  const std::optional<uint64_t> bytes = ParseSize({reinterpret_cast<const char*>(data), size});
  if (bytes) FUZZ_REQUIRE(ParseSize(FormatSize(*bytes)) == bytes);
  return 0;
}
