#include "proto/convert_layout.h"

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

absl::StatusOr<uint16_t> Narrow(const char* field, uint32_t value, uint32_t max) {
  if (value > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout: ", field, " is ", value, ", above the limit of ", max));
  }
  return static_cast<uint16_t>(value);
}

}  // namespace

absl::StatusOr<LayoutSpec> FromWire(const proto::Layout& wire) {
  if (wire.encoding_version() != kLayoutEncodingVersion) {
    return absl::InvalidArgumentError(absl::StrCat("layout: encoding_version is ", wire.encoding_version(),
                                                   ", this build knows ", kLayoutEncodingVersion));
  }
  if (wire.groups_size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout: ", wire.groups_size(), " groups, this build takes exactly one"));
  }
  const proto::LayoutGroup& group = wire.groups(0);
  if (group.family() != proto::LayoutGroup::FAMILY_HISTORY) {
    return absl::InvalidArgumentError(absl::StrCat("layout: family ", static_cast<int>(group.family()),
                                                   ", this build knows HISTORY alone"));
  }
  LayoutSpec layout;
  layout.model = wire.model();
  layout.block_tokens = wire.block_tokens();
  layout.part_bytes = group.part_bytes();
  CISTERN_ASSIGN_OR_RETURN(layout.slices, Narrow("slices", group.slices(), kSlicesMax));
  CISTERN_ASSIGN_OR_RETURN(layout.spans, Narrow("spans", group.spans(), kSpansMax));
  layout.dtype = group.dtype();
  layout.geometry = group.geometry();
  CISTERN_RETURN_IF_ERROR(ValidateLayout(layout));
  return layout;
}

proto::Layout ToWire(const LayoutSpec& layout) {
  proto::Layout wire;
  wire.set_encoding_version(kLayoutEncodingVersion);
  wire.set_model(layout.model);
  wire.set_block_tokens(layout.block_tokens);
  proto::LayoutGroup& group = *wire.add_groups();
  group.set_family(proto::LayoutGroup::FAMILY_HISTORY);
  group.set_slices(layout.slices);
  group.set_spans(layout.spans);
  group.set_part_bytes(layout.part_bytes);
  group.set_dtype(layout.dtype);
  group.set_geometry(layout.geometry);
  return wire;
}

}  // namespace cistern
