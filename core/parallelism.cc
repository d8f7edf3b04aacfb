#include "core/parallelism.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/layout/geometry.h"

namespace cistern {
namespace {

absl::Status Refuse(absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("PARALLELISM: ", why));
}

absl::Status CheckRanks(const Parallelism& who) {
  if (who.dcp != 1) return Refuse(absl::StrCat("DCP ", who.dcp, " is not supported; run with DCP 1"));
  if (who.pcp != 1) return Refuse(absl::StrCat("PCP ", who.pcp, " is not supported; run with PCP 1"));
  if (who.tp == 0 || who.tp > kRanksMax || who.tp_rank >= who.tp) {
    return absl::InvalidArgumentError(
        absl::StrCat("tp: rank ", who.tp_rank, " of ", who.tp, " ranks; at most ", kRanksMax));
  }
  if (who.layer_end != 0 && who.layer_first >= who.layer_end) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer_first: ", who.layer_first, " is not below layer_end ", who.layer_end));
  }
  return absl::OkStatus();
}

absl::Status TakeSlices(const layout::Group& group, const Parallelism& who, GroupShare& share) {
  const uint32_t slices = group.slices;
  share.slice_count = group.slices;
  if (group.replicated || slices == 1) {
    share.sharers = static_cast<uint16_t>(who.tp);
    share.sharer = static_cast<uint16_t>(who.tp_rank);
  } else if (slices % who.tp == 0) {
    share.slice_count = static_cast<uint16_t>(slices / who.tp);
    share.slice_first = static_cast<uint16_t>(who.tp_rank * share.slice_count);
  } else if (who.tp % slices == 0) {
    const uint32_t ranks = who.tp / slices;
    share.slice_count = 1;
    share.slice_first = static_cast<uint16_t>(who.tp_rank / ranks);
    share.sharers = static_cast<uint16_t>(ranks);
    share.sharer = static_cast<uint16_t>(who.tp_rank % ranks);
  } else {
    return Refuse(absl::StrCat("group ", group.name, " has ", slices, " slices, which TP ", who.tp,
                               " neither divides nor is a multiple of"));
  }
  return absl::OkStatus();
}

// Whole spans between two borders of the stage.
absl::Status TakeSpans(const layout::Group& group, const Parallelism& who, GroupShare& share) {
  const uint32_t spans = layout::SpanCount(group);
  if (who.layer_end == 0) {
    share.span_count = static_cast<uint16_t>(spans);
    return absl::OkStatus();
  }
  for (uint32_t span = 0; span < spans; ++span) {
    const std::vector<uint32_t> layers = layout::LayersOf(group, span);
    const auto inside = static_cast<size_t>(std::count_if(layers.begin(), layers.end(), [&](uint32_t layer) {
      return layer >= who.layer_first && layer < who.layer_end;
    }));
    if (inside == 0) continue;
    if (inside != layers.size()) {
      return Refuse(absl::StrCat("the stage [", who.layer_first, ", ", who.layer_end, ") cuts span ", span,
                                 " of group ", group.name, ", layers ", layers.front(), " to ",
                                 layers.back()));
    }
    if (share.span_count++ == 0) share.span_first = static_cast<uint16_t>(span);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<GroupShare>> ShareOf(const layout::Layout& layout, const Parallelism& who) {
  if (absl::Status status = CheckRanks(who); !status.ok()) return status;
  std::vector<GroupShare> out(layout.groups.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const layout::Group& group = layout.groups[i];
    if (group.family == layout::Family::kScratch) continue;
    if (absl::Status status = TakeSlices(group, who, out[i]); !status.ok()) return status;
    if (absl::Status status = TakeSpans(group, who, out[i]); !status.ok()) return status;
  }
  return out;
}

std::vector<GroupShare> WholeShare(const layout::Layout& layout) { return *ShareOf(layout, {}); }

uint64_t StoredParts::TotalBytes() const { return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}); }

void AppendParts(const layout::Layout& layout, uint32_t group, const GroupShare& share, uint64_t length,
                 uint32_t scale, StoredParts& out) {
  const layout::Group& g = layout.groups[group];
  if (g.family == layout::Family::kScratch) return;
  for (uint32_t slice = share.slice_first; slice < uint32_t{share.slice_first} + share.slice_count; ++slice) {
    for (uint32_t span = share.span_first; span < uint32_t{share.span_first} + share.span_count; ++span) {
      uint64_t left = (layout::PartBytes(layout, g, span, length) + scale - 1) / scale;
      for (uint32_t chunk = 0; left != 0 && chunk < kChunksMax; ++chunk) {
        const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(left, kPartBytesMax));
        out.coords.push_back({.group = static_cast<uint8_t>(group),
                              .slice = static_cast<uint16_t>(slice),
                              .span = static_cast<uint16_t>(chunk << kChunkShift | span)});
        out.bytes.push_back(bytes);
        left -= bytes;
      }
    }
  }
}

StoredParts HistoryParts(const layout::Layout& layout, const std::vector<GroupShare>& shares,
                         uint32_t scale) {
  StoredParts out;
  for (uint32_t i = 0; i < layout.groups.size(); ++i) {
    if (layout.groups[i].family == layout::Family::kHistory) AppendParts(layout, i, shares[i], 0, scale, out);
  }
  return out;
}

StoredParts TailParts(const layout::Layout& layout, const std::vector<GroupShare>& shares, uint64_t length,
                      uint32_t scale) {
  StoredParts out;
  for (uint32_t i = 0; i < layout.groups.size(); ++i) {
    if (IsTail(layout.groups[i])) AppendParts(layout, i, shares[i], length, scale, out);
  }
  return out;
}

bool IsTail(const layout::Group& group) {
  return group.family == layout::Family::kTailWindow || group.family == layout::Family::kTailState;
}

bool HasTails(const layout::Layout& layout) {
  return std::any_of(layout.groups.begin(), layout.groups.end(), IsTail);
}

}  // namespace cistern
