#include <algorithm>
#include <utility>

#include "client/core/peer_table.h"
#include "core/error_of.h"

// The peers that a map names, and which of them owns what.
namespace cistern {

uint32_t PeerTable::NewSlot() {
  auto made = std::make_unique<ClientPeer>(options_.breaker_failures, options_.breaker_retry);
  if (free_.empty()) {
    MakeRoom(peers_);
    free_.reserve(peers_.capacity());  // To give one back takes no memory.
    peers_.push_back(nullptr);
    free_.push_back(static_cast<uint32_t>(peers_.size() - 1));
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  peers_[slot] = std::move(made);
  peers_[slot]->slot = slot;
  peers_[slot]->serial = ++serials_;
  return slot;
}

// The peer of the map before, where it is the same process at the same place.
ClientPeer* PeerTable::SamePeer(const NodeEntry& node, uint32_t shard) {
  const auto was =
      std::find_if(map_.nodes.begin(), map_.nodes.end(), [&](const NodeEntry& n) { return n.id == node.id; });
  if (was == map_.nodes.end() || was->incarnation != node.incarnation ||
      was->shards.size() != node.shards.size()) {
    return nullptr;
  }
  const std::vector<uint32_t>& before = slots_of_node_[static_cast<size_t>(was - map_.nodes.begin())];
  return shard < before.size() ? Get(before[shard]) : nullptr;
}

// All of it or, without memory, nothing: what is half of one map and half of another names no peer.
void PeerTable::SetMap(const ClusterMap& map) {
  ClusterMap next = map;
  std::vector<std::vector<uint32_t>> slots_of_node(next.nodes.size());
  std::vector<uint32_t> made;
  std::vector<bool> kept;
  try {
    for (size_t i = 0; i < next.nodes.size(); ++i) {
      const NodeEntry& node = next.nodes[i];
      for (uint32_t shard = 0; shard < node.shards.size() && node.state != NodeState::kGone; ++shard) {
        ClientPeer* peer = SamePeer(node, shard);
        if (peer == nullptr) {
          MakeRoom(made);
          made.push_back(NewSlot());
          peer = Get(made.back());
          peer->node = node.id;
          peer->incarnation = node.incarnation;
          peer->shard = shard;
          peer->shards = static_cast<uint32_t>(node.shards.size());
        }
        peer->address = node.shards[shard];
        slots_of_node[i].push_back(peer->slot);
      }
    }
    kept.resize(peers_.size());
    levels_ = LevelsOf(next, slots_of_node);
  } catch (...) {
    for (const uint32_t slot : made) {
      peers_[slot].reset();
      free_.push_back(slot);
    }
    throw;
  }
  map_ = std::move(next);
  slots_of_node.swap(slots_of_node_);
  for (const auto& slots : slots_of_node_) {
    for (const uint32_t slot : slots) kept[slot] = true;
  }
  DropUnlisted(kept, slots_of_node);
}

// Those of the map before that the new one does not name.
void PeerTable::DropUnlisted(const std::vector<bool>& kept,
                             const std::vector<std::vector<uint32_t>>& old_slots) {
  for (const auto& slots : old_slots) {
    for (const uint32_t slot : slots) {
      if (kept[slot] || peers_[slot] == nullptr) continue;
      ClientPeer& gone = *peers_[slot];
      gone.listed = false;
      gone.next_address = false;
      next_wake_ = 0;
      if (gone.state != PeerState::kIdle)
        Fence(gone, ErrorOf(absl::StatusCode::kUnavailable, "node left the map"));
      gone.next_address = false;
      ReportFailed(gone);  // The core ends its requests; Service then frees the slot.
    }
  }
}

std::vector<PeerTable::Level> PeerTable::LevelsOf(const ClusterMap& map,
                                                  const std::vector<std::vector<uint32_t>>& slots_of_node) {
  std::vector<Level> levels(1 + std::min(map.open_moves.size(), kOpenMovesMax));
  levels[0].placement = Placement(map);
  for (size_t i = 1; i < levels.size(); ++i) levels[i].placement = Placement(map.open_moves[i - 1]);
  for (Level& level : levels) {
    for (const OwnerSet::Owner& owner : level.placement.owners().owners) {
      uint32_t at = kNoPeer;
      for (uint32_t i = 0; i < map.nodes.size(); ++i) {
        if (map.nodes[i].id == owner.id && !slots_of_node[i].empty()) at = i;
      }
      level.nodes.push_back(at);
    }
  }
  return levels;
}

uint32_t PeerTable::PeerFor(size_t level, const BlockHash& run_key) const {
  if (level >= levels_.size() || levels_[level].placement.empty()) return kNoPeer;
  const uint32_t node = levels_[level].nodes[levels_[level].placement.Owner(run_key)];
  if (node == kNoPeer) return kNoPeer;
  const std::vector<uint32_t>& slots = slots_of_node_[node];
  return slots[ShardOf(run_key, static_cast<uint32_t>(slots.size()))];
}

uint32_t PeerTable::PeerOf(std::string_view node, uint32_t shard) const {
  for (size_t i = 0; i < map_.nodes.size() && i < slots_of_node_.size(); ++i) {
    if (map_.nodes[i].id == node && shard < slots_of_node_[i].size()) return slots_of_node_[i][shard];
  }
  return kNoPeer;
}

}  // namespace cistern
