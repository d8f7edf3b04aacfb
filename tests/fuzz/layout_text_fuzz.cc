// Layouts: text, or bytes of the message, to plain values. What is taken must be valid and come back as it
// was.
#include <google/protobuf/stubs/logging.h>

#include <string>

#include "core/layout/encoding.h"
#include "core/layout/geometry.h"
#include "proto/bounded_parse.h"
#include "proto/convert_layout.h"
#include "proto/layout_catalog_data.h"
#include "proto/layout_text.h"
#include "tests/fuzz/fuzz_target.h"

namespace cistern {
namespace {

void CheckTaken(const layout::Layout& layout) {
  FUZZ_REQUIRE(layout::Validate(layout).ok());
  const absl::StatusOr<layout::Layout> again = ParseLayoutText(FormatLayoutText(layout), "again");
  FUZZ_REQUIRE(again.ok());
  FUZZ_REQUIRE(*again == layout);
  FUZZ_REQUIRE(layout::ComputeId(*again) == layout::ComputeId(layout));
  for (const layout::Group& group : layout.groups) {
    uint64_t bytes = 0;
    for (uint32_t span = 0; span < layout::SpanCount(group); ++span) {
      const uint64_t part = layout::PartBytes(layout, group, span, 1u << 20);
      FUZZ_REQUIRE(part <= layout::kLayoutPartBytesMax);
      bytes += part * group.slices;
    }
    FUZZ_REQUIRE(bytes == layout::GroupBytes(layout, group, 1u << 20));
  }
}

}  // namespace

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  for (const EmbeddedText& embedded : EmbeddedLayouts()) {
    if (embedded.text.size() > 4000) continue;  // Mutations of short texts reach more.
    add(std::string(embedded.name), std::string("t").append(embedded.text));
    const absl::StatusOr<layout::Layout> layout = ParseLayoutText(embedded.text, embedded.name);
    if (layout.ok())
      add(std::string(embedded.name) + "-wire", std::string("w").append(ToWire(*layout).SerializeAsString()));
  }
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  // protobuf writes a line for each string that is no UTF-8.
  [[maybe_unused]] static auto* const quiet = google::protobuf::SetLogHandler(nullptr);
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'w') {
    proto::Layout wire;
    if (!ParseBounded(wire, body)) return 0;
    const absl::StatusOr<layout::Layout> layout = FromWire(wire);
    if (layout.ok()) CheckTaken(*layout);
  } else {
    const absl::StatusOr<layout::Layout> layout = ParseLayoutText(body, "input");
    if (layout.ok()) CheckTaken(*layout);
  }
  return 0;
}
