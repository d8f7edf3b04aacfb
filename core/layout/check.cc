#include "core/layout/check.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/layout/geometry.h"
#include "core/status_macros.h"

namespace cistern::layout {
namespace {

absl::Status Invalid(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("layout: ", field, " ", what));
}

absl::Status AtMost(absl::string_view field, uint64_t value, uint64_t max) {
  if (value > max) return Invalid(field, absl::StrCat("is ", value, ", above the limit of ", max));
  return absl::OkStatus();
}

absl::Status InRange(absl::string_view field, uint64_t value, uint64_t max) {
  if (value == 0) return Invalid(field, "is 0");
  return AtMost(field, value, max);
}

absl::Status CheckText(absl::string_view field, const std::string& text, size_t bytes_max) {
  if (text.size() > bytes_max)
    return Invalid(field, absl::StrCat("is longer than ", bytes_max, " characters"));
  const auto odd = [](unsigned char c) { return c < 0x21 || c > 0x7e; };
  if (std::any_of(text.begin(), text.end(), odd))
    return Invalid(field, "has a blank or a character outside of ASCII");
  return absl::OkStatus();
}

absl::Status CheckName(absl::string_view field, const std::string& name) {
  if (name.empty()) return Invalid(field, "is empty");
  return CheckText(field, name, kNameBytesMax);
}

absl::Status CheckAscending(absl::string_view field, const std::vector<uint32_t>& ids, uint32_t max) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] > max) return Invalid(field, absl::StrCat("has ", ids[i], ", above the limit of ", max));
    if (i > 0 && ids[i] == ids[i - 1]) return Invalid(field, absl::StrCat("has ", ids[i], " twice"));
    if (i > 0 && ids[i] < ids[i - 1])
      return Invalid(field, absl::StrCat("has ", ids[i], " behind ", ids[i - 1], "; write them ascending"));
  }
  return absl::OkStatus();
}

// Values of these are meaningless without the rule that gives their scale.
bool NeedsScaleRule(const std::string& dtype) {
  return dtype == "e4m3" || dtype == "e5m2" || dtype == "int8" || dtype == "e2m1" || dtype == "int4" ||
         dtype == "uint4";
}

std::string At(absl::string_view path, absl::string_view list, size_t i) {
  return absl::StrCat(path, path.empty() ? "" : ".", list, "[", i, "]");
}

// a * b, or the largest number when that does not fit: what comes of it is over every limit.
uint64_t Times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}

}  // namespace

absl::Status LayoutCheck::Run() {
  CISTERN_RETURN_IF_ERROR(CheckTop());
  for (size_t g = 0; g < layout_.groups.size(); ++g) CISTERN_RETURN_IF_ERROR(CheckGroup(g));
  CISTERN_RETURN_IF_ERROR(CheckMissingLayers());
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    CISTERN_RETURN_IF_ERROR(CheckPartBytes(g));
    CISTERN_RETURN_IF_ERROR(CheckStripes(g));
  }
  return CheckPartCount();
}

absl::Status LayoutCheck::CheckTop() {
  CISTERN_RETURN_IF_ERROR(CheckText("model", layout_.model, kModelBytesMax));
  CISTERN_RETURN_IF_ERROR(CheckText("rows", layout_.rows, kNameBytesMax));
  CISTERN_RETURN_IF_ERROR(InRange("block_tokens", layout_.block_tokens, kBlockTokensMax));
  CISTERN_RETURN_IF_ERROR(InRange("unit_tokens", layout_.unit_tokens, kBlockTokensMax));
  CISTERN_RETURN_IF_ERROR(InRange("align_tokens", layout_.align_tokens, kAlignTokensMax));
  CISTERN_RETURN_IF_ERROR(AtMost("replay_tokens", layout_.replay_tokens, kReplayTokensMax));
  CISTERN_RETURN_IF_ERROR(AtMost("stripe_layers", layout_.stripe_layers, kStripeLayersMax));
  for (const auto& [field, value] :
       {std::pair("block_tokens", layout_.block_tokens), std::pair("align_tokens", layout_.align_tokens)}) {
    if (value % layout_.unit_tokens != 0) {
      return Invalid(
          field, absl::StrCat("is ", value, ", not a multiple of unit_tokens (", layout_.unit_tokens, ")"));
    }
  }
  CISTERN_RETURN_IF_ERROR(CheckAscending("cacheless_layers", layout_.cacheless_layers, kLayersMax - 1));
  if (layout_.groups.empty()) return Invalid("groups", "is empty; a layout has at least one group");
  return AtMost("groups", layout_.groups.size(), kGroupsMax);
}

absl::Status LayoutCheck::CheckGroup(size_t g) {
  const Group& group = layout_.groups[g];
  const std::string path = At("", "groups", g);
  CISTERN_RETURN_IF_ERROR(CheckName(path + ".name", group.name));
  if (!group_names_.insert(group.name).second)
    return Invalid(path + ".name", absl::StrCat("is '", group.name, "', as another group's"));
  CISTERN_RETURN_IF_ERROR(CheckFamily(path, group));
  CISTERN_RETURN_IF_ERROR(AtMost(path + ".lookahead_tokens", group.lookahead_tokens, kLookaheadTokensMax));
  CISTERN_RETURN_IF_ERROR(InRange(path + ".slices", group.slices, kSlicesMax));
  if (group.replicated && group.slices != 1)
    return Invalid(path + ".slices", absl::StrCat("is ", group.slices, " in a replicated group; write 1"));
  if (group.segments.empty() && group.family != Family::kScratch)
    return Invalid(path + ".segments", "is empty: the group has no layer");
  CISTERN_RETURN_IF_ERROR(AtMost(path + ".segments", group.segments.size(), kSegmentsMax));
  for (size_t s = 0; s < group.segments.size(); ++s)
    CISTERN_RETURN_IF_ERROR(CheckSegment(At(path, "segments", s), group, group.segments[s]));
  return CheckSpans(path, group);
}

absl::Status LayoutCheck::CheckFamily(const std::string& path, const Group& group) {
  switch (group.family) {
    case Family::kTailWindow:
      CISTERN_RETURN_IF_ERROR(InRange(path + ".window_tokens", group.window_tokens, kWindowTokensMax));
      if (group.window_tokens == 1)
        return Invalid(path + ".window_tokens", "is 1: such a window needs nothing from before a boundary");
      return absl::OkStatus();
    case Family::kHistory:
    case Family::kTailState:
    case Family::kScratch:
      if (group.window_tokens != 0)
        return Invalid(path + ".window_tokens",
                       absl::StrCat("is ", group.window_tokens, " in a ",
                                    std::string(FamilyName(group.family)), " group; write 0"));
      return absl::OkStatus();
  }
  return Invalid(path + ".family", absl::StrCat("is ", static_cast<int>(group.family), ", no family"));
}

absl::Status LayoutCheck::CheckSpans(const std::string& path, const Group& group) {
  const std::string field = path + ".span_ends";
  if (group.span_ends.empty()) return absl::OkStatus();
  CISTERN_RETURN_IF_ERROR(AtMost(field, group.span_ends.size(), kSpansMax));
  CISTERN_RETURN_IF_ERROR(CheckAscending(field, group.span_ends, kLayersMax));
  if (Times(group.slices, group.span_ends.size()) > kPartsPerBlockMax) {
    return Invalid(field, absl::StrCat("x slices is ", group.slices * group.span_ends.size(),
                                       " parts, above the limit of ", kPartsPerBlockMax));
  }
  const std::vector<uint32_t> layers = LayersOf(group);
  if (layers.empty()) return Invalid(field, "is given for a group without layers");
  if (group.span_ends.back() <= layers.back()) {
    return Invalid(field, absl::StrCat("ends at ", group.span_ends.back(), " and leaves out layer ",
                                       layers.back(), " of the group"));
  }
  uint32_t first = 0;
  for (uint32_t end : group.span_ends) {
    if (std::lower_bound(layers.begin(), layers.end(), first) ==
        std::lower_bound(layers.begin(), layers.end(), end)) {
      return Invalid(field, absl::StrCat("makes a span of layers ", first, " to ", end,
                                         " (end left out) in which the group has none"));
    }
    first = end;
  }
  return absl::OkStatus();
}

absl::Status LayoutCheck::CheckSegment(const std::string& path, const Group& group, const Segment& segment) {
  CISTERN_RETURN_IF_ERROR(CheckText(path + ".name", segment.name, kNameBytesMax));
  if (segment.layers.empty()) return Invalid(path + ".layers", "is empty");
  CISTERN_RETURN_IF_ERROR(CheckAscending(path + ".layers", segment.layers, kLayersMax - 1));
  CISTERN_RETURN_IF_ERROR(CheckCadence(path, group, segment));
  CISTERN_RETURN_IF_ERROR(InRange(path + ".row_tile", segment.row_tile, kRowTileMax));
  if (segment.planes.empty()) return Invalid(path + ".planes", "is empty");
  CISTERN_RETURN_IF_ERROR(AtMost(path + ".planes", segment.planes.size(), kPlanesMax));
  for (size_t p = 0; p < segment.planes.size(); ++p) {
    const std::string plane = At(path, "planes", p);
    CISTERN_RETURN_IF_ERROR(CheckPlane(plane, segment.planes[p]));
    CISTERN_RETURN_IF_ERROR(CheckPlaneAmong(plane, group, segment, p));
  }
  return CheckOverlap(path, group, segment);
}

absl::Status LayoutCheck::CheckCadence(const std::string& path, const Group& group, const Segment& segment) {
  const std::string field = path + ".tokens_per_row";
  const uint32_t tokens = segment.tokens_per_row;
  if (group.family == Family::kHistory) {
    CISTERN_RETURN_IF_ERROR(InRange(field, tokens, kBlockTokensMax));
    if (layout_.block_tokens % tokens != 0) {
      return Invalid(field, absl::StrCat("is ", tokens, ", which does not divide block_tokens (",
                                         layout_.block_tokens, ")"));
    }
  } else if (group.family == Family::kTailWindow && tokens != 1) {
    return Invalid(field, absl::StrCat("is ", tokens, "; a window has one row a token"));
  } else if (group.family == Family::kTailState && tokens != 0) {
    return Invalid(field, absl::StrCat("is ", tokens, "; a snapshot has one row and says 0"));
  }
  return AtMost(field, tokens, kBlockTokensMax);
}

absl::Status LayoutCheck::CheckPlane(const std::string& path, const Plane& plane) {
  CISTERN_RETURN_IF_ERROR(CheckName(path + ".name", plane.name));
  CISTERN_RETURN_IF_ERROR(CheckName(path + ".dtype", plane.dtype));
  const std::optional<uint32_t> bits = DtypeBits(plane.dtype);
  if (!bits) {
    return Invalid(path + ".dtype",
                   absl::StrCat("'", plane.dtype,
                                "' is unknown; this build knows fp32, bf16, fp16, e4m3, e5m2, "
                                "int8, uint8, ue8m0, e2m1, int4, uint4, opaque"));
  }
  CISTERN_RETURN_IF_ERROR(InRange(path + ".heads", plane.heads, kHeadsMax));
  CISTERN_RETURN_IF_ERROR(InRange(path + ".elements", plane.elements, kElementsMax));
  if (uint64_t{plane.elements} * *bits % 8 != 0) {
    return Invalid(path + ".elements", absl::StrCat("is ", plane.elements, ": ", *bits,
                                                    " bits each make no whole number of bytes"));
  }
  CISTERN_RETURN_IF_ERROR(AtMost(path + ".pad_bytes", plane.pad_bytes, kPadBytesMax));
  if (plane.shard != Shard::kNone && plane.shard != Shard::kHead)
    return Invalid(path + ".shard", absl::StrCat("is ", static_cast<int>(plane.shard), ", no way to shard"));
  if (plane.order != Order::kRow && plane.order != Order::kColumn && plane.order != Order::kNamed)
    return Invalid(path + ".order", absl::StrCat("is ", static_cast<int>(plane.order), ", no order"));
  if (plane.order == Order::kNamed)
    CISTERN_RETURN_IF_ERROR(CheckName(path + ".order_name", plane.order_name));
  else if (!plane.order_name.empty())
    return Invalid(path + ".order_name", "is given, but order is not NAMED");
  if (plane.order == Order::kColumn && plane.pad_bytes != 0)
    return Invalid(path + ".pad_bytes", "is given for a transposed plane, whose rows have no end");
  return CheckScale(path, plane);
}

absl::Status LayoutCheck::CheckScale(const std::string& path, const Plane& plane) {
  CISTERN_RETURN_IF_ERROR(CheckText(path + ".scale_rule", plane.scale_rule, kNameBytesMax));
  if (plane.scale_rule.empty()) {
    if (NeedsScaleRule(plane.dtype)) {
      return Invalid(path + ".scale_rule",
                     absl::StrCat("is empty for ", plane.dtype, "; name the rule, or write none"));
    }
    if (plane.scale_group != 0) return Invalid(path + ".scale_group", "is given without a scale_rule");
    return absl::OkStatus();
  }
  if (plane.scale_group != 0 && plane.elements % plane.scale_group != 0) {
    return Invalid(path + ".scale_group",
                   absl::StrCat("is ", plane.scale_group, ", which does not divide the ", plane.elements,
                                " elements of a row"));
  }
  return absl::OkStatus();
}

absl::Status LayoutCheck::CheckPlaneAmong(const std::string& path, const Group& group, const Segment& segment,
                                          size_t p) {
  const Plane& plane = segment.planes[p];
  for (size_t q = 0; q < p; ++q) {
    if (segment.planes[q].name == plane.name)
      return Invalid(path + ".name", absl::StrCat("is '", plane.name, "', as planes[", q, "]'s"));
  }
  if (plane.heads != segment.planes[0].heads) {
    return Invalid(path + ".heads",
                   absl::StrCat("is ", plane.heads, ", but planes[0] has ", segment.planes[0].heads,
                                "; planes of other heads go into a segment of their own"));
  }
  if (plane.joined && p == 0) return Invalid(path + ".joined", "is set for the first plane");
  if (plane.joined && (plane.order != Order::kRow || segment.planes[p - 1].order != Order::kRow))
    return Invalid(path + ".joined", "is set between planes that are not both in ROW order");
  if (plane.shard == Shard::kHead && plane.heads % group.slices != 0) {
    return Invalid(path + ".heads",
                   absl::StrCat("is ", plane.heads, ", which ", group.slices, " slices do not divide"));
  }
  if (plane.shard == Shard::kNone && group.slices != 1) {
    return Invalid(path + ".shard", absl::StrCat("is NONE in a group of ", group.slices,
                                                 " slices; put the plane into a replicated group"));
  }
  return absl::OkStatus();
}

absl::Status LayoutCheck::CheckOverlap(const std::string& path, const Group& group, const Segment& segment) {
  for (uint32_t layer : segment.layers) {
    layers_.insert(layer);
    for (const Plane& plane : segment.planes) {
      const auto key = std::pair(static_cast<uint32_t>(group.family), std::pair(layer, plane.name));
      const auto [it, fresh] = seen_.emplace(key, path);
      if (!fresh) {
        return Invalid(path + ".layers", absl::StrCat("overlaps ", it->second, ": layer ", layer,
                                                      " has plane '", plane.name, "' in both"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status LayoutCheck::CheckMissingLayers() {
  for (uint32_t layer : layout_.cacheless_layers) {
    if (!layers_.insert(layer).second)
      return Invalid("cacheless_layers", absl::StrCat("has layer ", layer, ", which is in a group"));
  }
  uint32_t next = 0;
  for (uint32_t layer : layers_) {
    if (layer != next) {
      return Invalid("groups", absl::StrCat("have no layer ", next, " but layer ", layer,
                                            "; a layer that keeps nothing goes into cacheless_layers"));
    }
    ++next;
  }
  return absl::OkStatus();
}

absl::Status LayoutCheck::CheckPartBytes(size_t g) {
  const Group& group = layout_.groups[g];
  const std::string path = At("", "groups", g);
  // Every factor is bounded by now; each product is watched, so that the sum below fits.
  uint64_t bytes = 0;
  for (const Segment& segment : group.segments) {
    const uint64_t rows = Times(segment.planes[0].heads / group.slices,
                                PartRows(layout_, group, segment, std::numeric_limits<uint64_t>::max()));
    const uint64_t layer = Times(rows, RowBytes(segment));
    if (layer > kLayoutPartBytesMax) {
      return Invalid(path, absl::StrCat("has ", layer, " bytes a part and layer, above the limit of ",
                                        kLayoutPartBytesMax, " a part; use more slices or smaller blocks"));
    }
    bytes += layer * segment.layers.size();
  }
  for (uint32_t span = 0; bytes > kLayoutPartBytesMax && span < SpanCount(group); ++span) {
    const uint64_t part = PartBytes(layout_, group, span, std::numeric_limits<uint64_t>::max());
    if (part > kLayoutPartBytesMax) {
      return Invalid(path,
                     absl::StrCat("has a part of ", part, " bytes (span ", span, "), above the limit of ",
                                  kLayoutPartBytesMax, "; cut it with span_ends or slices"));
    }
  }
  return absl::OkStatus();
}

absl::Status LayoutCheck::CheckStripes(size_t g) {
  const Group& group = layout_.groups[g];
  for (uint32_t span = 0; layout_.stripe_layers != 0 && span < SpanCount(group); ++span) {
    const size_t stripes = (LayersOf(group, span).size() + layout_.stripe_layers - 1) / layout_.stripe_layers;
    if (stripes > kStripesMax) {
      return Invalid("stripe_layers", absl::StrCat("is ", layout_.stripe_layers, ", which makes ", stripes,
                                                   " stripes of a part of ", At("", "groups", g),
                                                   ", above the limit of ", kStripesMax));
    }
  }
  return absl::OkStatus();
}

absl::Status LayoutCheck::CheckPartCount() {
  for (const auto& [what, count] : {std::pair("of one block", HistoryCoords(layout_).size()),
                                    std::pair("of one boundary's tail", TailCoords(layout_).size())}) {
    if (count > kPartsPerBlockMax) {
      return Invalid("groups", absl::StrCat("make ", count, " parts ", what, ", above the limit of ",
                                            kPartsPerBlockMax));
    }
  }
  return absl::OkStatus();
}

}  // namespace cistern::layout
