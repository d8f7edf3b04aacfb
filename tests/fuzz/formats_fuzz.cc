// Stored parts of any bytes in shapes of any numbers: refused, or decoded inside their memory, and what was
// decoded compresses again unless a damaged scale made it infinite.
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/formats/compression.h"
#include "tests/fuzz/fuzz_target.h"

namespace cistern {
namespace {

// form, row_tile, planes, then per plane 2 bytes of elements and flags; sequences and rows last.
constexpr size_t kHeadBytes = 8;

}  // namespace

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  for (char form = 0; form < 3; ++form) {
    const std::string head = {form, 1, 2, char(128 / 4), char(128 / 4 + 1), 2, 32, 1};
    add("form_" + std::to_string(form), head + std::string(100, '\x3c'));
  }
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  if (size < kHeadBytes) return 0;
  const auto form = static_cast<StoredForm>(data[0] % 3);
  BfPartShape shape = {.sequences = data[5], .rows = data[6], .row_tile = data[1], .planes = {}};
  // Now and then a number that no part has.
  if ((data[7] & 0x80) != 0) shape.sequences = LoadLe<uint32_t>(data + 4);
  for (size_t i = 0; i < data[2] % (kPlanesMax + 2); ++i) {
    const uint8_t given = data[3 + i % 2];
    shape.planes.push_back({.elements = given * (given % 7 == 0 ? 1u : 4u), .per_channel = given % 2 == 1});
  }
  const absl::Status valid = ValidateShape(shape, form);
  if (!valid.ok()) {
    FUZZ_REQUIRE(valid.code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  const uint64_t stored_bytes = StoredBytes(shape, form);
  if (stored_bytes > (1u << 20)) return 0;  // Large ones are only slow.
  std::vector<std::byte> stored(stored_bytes), raw(shape.RawBytes());
  for (size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::byte>(data[i % size]);
  FUZZ_REQUIRE(DecompressPart(shape, form, stored, absl::MakeSpan(raw)).ok());
  const absl::Status again = CompressPart(shape, form, raw, absl::MakeSpan(stored));
  FUZZ_REQUIRE(again.ok() || again.code() == absl::StatusCode::kFailedPrecondition);
  return 0;
}
