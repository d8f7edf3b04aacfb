#include "client/rank_split.h"

#include <algorithm>
#include <numeric>

#include "core/layout/geometry.h"

namespace cistern {

uint32_t RankSplit::RankOf(uint32_t group, const BlockHash& first) const {
  const GroupShare& share = shares_[group];
  const uint32_t begin = options_.tp_rank - share.sharer;  // Sharers are neighbours.
  if (what_ == For::kStore) {
    GroupShare other = share;
    for (other.sharer = 0; !IsWriter(other, first); ++other.sharer) {
    }
    return begin + other.sharer;
  }
  // Those of them that are on this host.
  const uint32_t host = options_.tp_rank / options_.host_ranks * options_.host_ranks;
  const uint32_t from = std::max(begin, host);
  const uint32_t locals = std::min(begin + share.sharers, host + options_.host_ranks) - from;
  uint32_t local = 0;
  while (!IsPuller(first, local, locals)) ++local;
  return from + local;
}

bool RankSplit::IsShared() const {
  if (what_ == For::kLoad && options_.host_ranks <= 1) return false;
  return std::any_of(shares_.begin(), shares_.end(),
                     [](const GroupShare& share) { return share.sharers > 1; });
}

RankParts RankSplit::Take(const std::vector<uint32_t>& groups, const BlockHash& first,
                          uint64_t tokens) const {
  RankParts mine;
  uint64_t at = 0;
  for (const uint32_t group : groups) {
    StoredParts parts;
    AppendParts(layout_.layout, group, shares_[group], tokens, layout_.scale, parts);
    const uint64_t bytes = parts.TotalBytes();
    if (bytes != 0 && RankOf(group, first) == options_.tp_rank) {
      if (!mine.ranges.empty() && mine.ranges.back().first + mine.ranges.back().second == at) {
        mine.ranges.back().second += bytes;
      } else {
        mine.ranges.emplace_back(at, bytes);
      }
      mine.parts.coords.insert(mine.parts.coords.end(), parts.coords.begin(), parts.coords.end());
      mine.parts.bytes.insert(mine.parts.bytes.end(), parts.bytes.begin(), parts.bytes.end());
    } else {
      mine.whole &= bytes == 0;
    }
    at += bytes;
  }
  return mine;
}

std::vector<RankPiece> RankSplit::History(absl::Span<const BlockKey> chain, uint32_t first,
                                          uint32_t count) const {
  std::vector<RankPiece> out;
  for (uint32_t block = first; block < first + count;) {
    const uint32_t unit = block / kElectionBlocks * kElectionBlocks;
    const uint32_t end = std::min(unit + kElectionBlocks, first + count);
    RankPiece piece{
        .first = block, .count = end - block, .mine = Take(layout_.sets.front().groups, chain[unit].hash, 0)};
    if (!out.empty() && out.back().mine.parts.coords == piece.mine.parts.coords) {
      out.back().count += piece.count;
    } else {
      out.push_back(std::move(piece));
    }
    block = end;
  }
  return out;
}

RankParts RankSplit::Tail(const BlockHash& block, uint64_t tokens) const {
  std::vector<uint32_t> groups;
  for (uint32_t group = 0; group < layout_.layout.groups.size(); ++group) {
    if (IsTail(layout_.layout.groups[group])) groups.push_back(group);
  }
  return Take(groups, block, tokens);
}

namespace {

template <typename Page, typename Byte>
Page Cut(const Page& page, const RankParts& parts) {
  if (parts.whole) return page;
  Page out;
  for (const auto& [from, bytes] : parts.ranges) {
    uint64_t at = 0;  // Of the piece, in the page.
    for (const auto& piece : page.pieces) {
      const uint64_t begin = std::max<uint64_t>(from, at);
      const uint64_t end = std::min<uint64_t>(from + bytes, at + piece.bytes);
      if (begin < end) out.pieces.push_back({static_cast<Byte*>(piece.data) + (begin - at), end - begin});
      at += piece.bytes;
    }
  }
  return out;
}

}  // namespace

cistern::Page CutTo(const cistern::Page& page, const RankParts& parts) {
  return Cut<cistern::Page, std::byte>(page, parts);
}
ConstPage CutTo(const ConstPage& page, const RankParts& parts) {
  return Cut<ConstPage, const std::byte>(page, parts);
}

}  // namespace cistern
