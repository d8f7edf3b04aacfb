#include "proto/convert_layout.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

using layout::Group;
using layout::Layout;
using layout::Plane;

absl::Status Invalid(const std::string& field, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("layout: ", field, " ", what));
}

uint32_t Or(uint32_t value, uint32_t left_out) { return value == 0 ? left_out : value; }

// Counts are checked before anything is copied: a hostile message costs no more than its own bytes.
absl::Status CheckCount(const std::string& field, int count, size_t max) {
  if (static_cast<size_t>(count) > max)
    return Invalid(field, absl::StrCat("has ", count, " entries, above the limit of ", max));
  return absl::OkStatus();
}

absl::StatusOr<Plane> ToPlane(const proto::LayoutPlane& wire, const std::string& path) {
  Plane plane;
  plane.name = wire.name();
  plane.dtype = wire.dtype();
  plane.heads = Or(wire.heads(), 1);
  plane.elements = wire.elements();
  if (!proto::LayoutPlane::Shard_IsValid(wire.shard()))
    return Invalid(path + ".shard", absl::StrCat("is ", static_cast<int>(wire.shard()), ", no way to shard"));
  plane.shard = wire.shard() == proto::LayoutPlane::SHARD_HEAD ? layout::Shard::kHead : layout::Shard::kNone;
  if (!proto::LayoutPlane::Order_IsValid(wire.order()))
    return Invalid(path + ".order", absl::StrCat("is ", static_cast<int>(wire.order()), ", no order"));
  if (wire.order() == proto::LayoutPlane::ORDER_COLUMN) plane.order = layout::Order::kColumn;
  if (wire.order() == proto::LayoutPlane::ORDER_NAMED) plane.order = layout::Order::kNamed;
  plane.order_name = wire.order_name();
  plane.scale_rule = wire.scale_rule();
  plane.scale_group = wire.scale_group();
  plane.pad_bytes = wire.pad_bytes();
  plane.joined = wire.joined();
  return plane;
}

absl::StatusOr<layout::Segment> ToSegment(const proto::LayoutSegment& wire, const std::string& path) {
  CISTERN_RETURN_IF_ERROR(CheckCount(path + ".layers", wire.layers_size(), layout::kLayersMax));
  CISTERN_RETURN_IF_ERROR(CheckCount(path + ".planes", wire.planes_size(), layout::kPlanesMax));
  layout::Segment segment;
  segment.name = wire.name();
  segment.layers.assign(wire.layers().begin(), wire.layers().end());
  segment.tokens_per_row = wire.has_tokens_per_row() ? wire.tokens_per_row() : 1;
  segment.row_tile = Or(wire.row_tile(), 1);
  for (int p = 0; p < wire.planes_size(); ++p) {
    CISTERN_ASSIGN_OR_RETURN(Plane plane, ToPlane(wire.planes(p), absl::StrCat(path, ".planes[", p, "]")));
    segment.planes.push_back(std::move(plane));
  }
  return segment;
}

absl::StatusOr<Group> ToGroup(const proto::LayoutGroup& wire, const std::string& path) {
  CISTERN_RETURN_IF_ERROR(CheckCount(path + ".span_ends", wire.span_ends_size(), kSpansMax));
  CISTERN_RETURN_IF_ERROR(CheckCount(path + ".segments", wire.segments_size(), layout::kSegmentsMax));
  if (wire.family() == proto::LayoutGroup::FAMILY_UNSPECIFIED ||
      !proto::LayoutGroup::Family_IsValid(wire.family())) {
    return Invalid(
        path + ".family",
        absl::StrCat("is ", static_cast<int>(wire.family()),
                     "; write FAMILY_HISTORY, FAMILY_TAIL_WINDOW, FAMILY_TAIL_STATE or FAMILY_SCRATCH"));
  }
  if (wire.slices() > kSlicesMax)
    return Invalid(path + ".slices", absl::StrCat("is ", wire.slices(), ", above the limit of ", kSlicesMax));
  Group group;
  group.name = wire.name();
  group.family = static_cast<layout::Family>(wire.family());
  group.window_tokens = wire.window_tokens();
  group.required = !wire.has_required() || wire.required();
  group.lookahead_tokens = wire.lookahead_tokens();
  group.slices = static_cast<uint16_t>(Or(wire.slices(), 1));
  group.replicated = wire.replicated();
  group.span_ends.assign(wire.span_ends().begin(), wire.span_ends().end());
  group.working = wire.working();
  for (int s = 0; s < wire.segments_size(); ++s) {
    CISTERN_ASSIGN_OR_RETURN(layout::Segment segment,
                             ToSegment(wire.segments(s), absl::StrCat(path, ".segments[", s, "]")));
    group.segments.push_back(std::move(segment));
  }
  return group;
}

void FillPlane(const Plane& plane, proto::LayoutPlane& wire) {
  wire.set_name(plane.name);
  wire.set_dtype(plane.dtype);
  if (plane.heads != 1) wire.set_heads(plane.heads);
  wire.set_elements(plane.elements);
  if (plane.shard == layout::Shard::kHead) wire.set_shard(proto::LayoutPlane::SHARD_HEAD);
  if (plane.order == layout::Order::kColumn) wire.set_order(proto::LayoutPlane::ORDER_COLUMN);
  if (plane.order == layout::Order::kNamed) wire.set_order(proto::LayoutPlane::ORDER_NAMED);
  wire.set_order_name(plane.order_name);
  wire.set_scale_rule(plane.scale_rule);
  wire.set_scale_group(plane.scale_group);
  wire.set_pad_bytes(plane.pad_bytes);
  wire.set_joined(plane.joined);
}

void FillGroup(const Group& group, proto::LayoutGroup& wire) {
  wire.set_name(group.name);
  wire.set_family(static_cast<proto::LayoutGroup::Family>(group.family));
  wire.set_window_tokens(group.window_tokens);
  if (!group.required) wire.set_required(false);
  wire.set_lookahead_tokens(group.lookahead_tokens);
  if (group.slices != 1) wire.set_slices(group.slices);
  wire.set_replicated(group.replicated);
  wire.mutable_span_ends()->Add(group.span_ends.begin(), group.span_ends.end());
  wire.set_working(group.working);
  for (const layout::Segment& segment : group.segments) {
    proto::LayoutSegment& one = *wire.add_segments();
    one.set_name(segment.name);
    one.mutable_layers()->Add(segment.layers.begin(), segment.layers.end());
    if (segment.tokens_per_row != 1) one.set_tokens_per_row(segment.tokens_per_row);
    if (segment.row_tile != 1) one.set_row_tile(segment.row_tile);
    for (const Plane& plane : segment.planes) FillPlane(plane, *one.add_planes());
  }
}

}  // namespace

absl::StatusOr<Layout> FromWire(const proto::Layout& wire) {
  if (wire.encoding_version() != layout::kEncodingVersion) {
    return Invalid("encoding_version", absl::StrCat("is ", wire.encoding_version(), ", this build knows ",
                                                    layout::kEncodingVersion));
  }
  CISTERN_RETURN_IF_ERROR(CheckCount("groups", wire.groups_size(), layout::kGroupsMax));
  CISTERN_RETURN_IF_ERROR(CheckCount("cacheless_layers", wire.cacheless_layers_size(), layout::kLayersMax));
  Layout layout;
  layout.model = wire.model();
  layout.rows = wire.rows();
  layout.served = wire.served();
  layout.block_tokens = wire.block_tokens();
  layout.unit_tokens = Or(wire.unit_tokens(), wire.block_tokens());
  layout.align_tokens = Or(wire.align_tokens(), wire.block_tokens());
  layout.replay_tokens = wire.replay_tokens();
  layout.stripe_layers = wire.stripe_layers();
  layout.cacheless_layers.assign(wire.cacheless_layers().begin(), wire.cacheless_layers().end());
  for (int g = 0; g < wire.groups_size(); ++g) {
    CISTERN_ASSIGN_OR_RETURN(Group group, ToGroup(wire.groups(g), absl::StrCat("groups[", g, "]")));
    layout.groups.push_back(std::move(group));
  }
  CISTERN_RETURN_IF_ERROR(layout::Validate(layout));
  return layout;
}

proto::Layout ToWire(const Layout& layout) {
  proto::Layout wire;
  wire.set_encoding_version(layout::kEncodingVersion);
  wire.set_model(layout.model);
  wire.set_rows(layout.rows);
  wire.set_served(layout.served);
  wire.set_block_tokens(layout.block_tokens);
  if (layout.unit_tokens != layout.block_tokens) wire.set_unit_tokens(layout.unit_tokens);
  if (layout.align_tokens != layout.block_tokens) wire.set_align_tokens(layout.align_tokens);
  wire.set_replay_tokens(layout.replay_tokens);
  wire.set_stripe_layers(layout.stripe_layers);
  wire.mutable_cacheless_layers()->Add(layout.cacheless_layers.begin(), layout.cacheless_layers.end());
  for (const Group& group : layout.groups) FillGroup(group, *wire.add_groups());
  return wire;
}

}  // namespace cistern
