// STATS of a shard.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/disk_tier.h"
#include "cache_node/hbm_tier.h"
#include "cache_node/node_shard.h"
#include "core/cpu_time.h"
#include "proto/convert.h"

namespace cistern {
namespace {

// "put_parts_ok_total", "put_parts_no_space_total", ...: one counter an outcome.
void AddResults(const char* name, const NodeCounters::ByResult& results, NodeStats& stats) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == 0) continue;
    std::string code(PartResultName(static_cast<PartResult>(i)));
    std::transform(code.begin(), code.end(), code.begin(), [](unsigned char c) { return std::tolower(c); });
    stats.counters[absl::StrCat(name, "_", code, "_total")] = results[i];
  }
}

// What has happened on a shard since it started.
void AddCounters(const NodeCounters& c, NodeStats& stats) {
  stats.hit_blocks = c.hit_blocks;
  stats.miss_blocks = c.miss_blocks;
  auto& out = stats.counters;
  out["lookup_blocks_total"] = c.lookup_blocks;
  out["hit_blocks_total"] = c.hit_blocks;
  out["miss_blocks_total"] = c.miss_blocks;
  out["probe_blocks_total"] = c.probe_blocks;
  out["collisions_rejected_total"] = c.collisions_rejected;
  out["layout_mismatches_total"] = c.layout_mismatches;
  out["corrupt_puts_total"] = c.corrupt_puts;
  out["put_bytes_total"] = c.put_bytes;
  out["inline_bytes_total"] = c.inline_bytes;
  out["evicted_parts_total"] = c.evicted_parts;
  out["evicted_bytes_total"] = c.evicted_bytes;
  out["slab_evicted_parts_total"] = c.slab_evicted_parts;
  out["slabs_moved_total"] = c.slabs_moved;
  out["dropped_parts_total"] = c.dropped_parts;
  out["expired_parts_total"] = c.expired_parts;
  out["quota_rejected_parts_total"] = c.quota_rejected_parts;
  out["quota_rows_left_out_total"] = c.quota_rows_left_out;
  out["pins_refused_total"] = c.pins_refused;
  out["no_space_total"] = c.no_space;
  out["plans_total"] = c.plans;
  out["staged_plans_total"] = c.staged_plans;
  out["held_offers_total"] = c.held_offers;
  out["leases_expired_total"] = c.leases_expired;
  out["puts_expired_total"] = c.puts_expired;
  out["puts_abandoned_total"] = c.puts_abandoned;
  out["peers_accepted_total"] = c.peers_accepted;
  out["peers_refused_total"] = c.peers_refused;
  out["peers_fenced_total"] = c.peers_fenced;
  out["version_refused_total"] = c.version_refused;
  out["algorithm_refused_total"] = c.algorithm_refused;
  out["tickets_expired_total"] = c.tickets_expired;
  out["bad_frames_total"] = c.bad_frames;
  out["wrong_shard_blocks_total"] = c.wrong_shard_blocks;
  out["denied_requests_total"] = c.denied_requests;
  AddResults("plan_parts", c.plan_parts, stats);
  AddResults("read_parts", c.read_parts, stats);
  AddResults("offer_parts", c.offer_parts, stats);
  AddResults("put_parts", c.put_parts, stats);
}

}  // namespace

NodeStats NodeShard::Stats() const {
  NodeStats stats;
  stats.tiers.push_back({.tier = "ram",
                         .used_bytes = ram_.used_bytes(),
                         .capacity_bytes = ram_.capacity_bytes(),
                         .parts = ram_.parts()});
  if (hbm_ != nullptr) hbm_->AddStats(stats);
  if (disk_ != nullptr) disk_->AddStats(stats);
  if (options_.shard == 0) stats.cpu_seconds = ProcessCpuSeconds();
  AddCounters(counters_, stats);
  // What the transport refused never reached this shard; both kinds count as one (F61, S03).
  for (const auto& [name, value] : transport_.counters()) stats.counters[name] += value;
  AddGauges(stats);
  AddTenants(stats);
  stats.runs = heat_.Top(kRunStatsMax, clock_.Now());
  AddPeers(stats);
  return stats;
}

// How things stand now.
void NodeShard::AddGauges(NodeStats& stats) const {
  auto& out = stats.counters;
  out["leases_live"] = leases_.plans();
  out["payload_holds"] = leases_.holds();
  out["leased_parts"] = ram_.leased_parts();
  out["doomed_parts"] = ram_.doomed_parts();
  out["pinned_bytes"] = ram_.pinned_bytes();
  out["stranded_bytes"] = ram_.stranded_bytes();
  out["superseded_bytes"] = ram_.superseded_bytes();
  out["tails"] = ram_.tails();
  // 1,000,000 when the whole capacity is pinned. Of one shard: sums of shards have to be made again from
  // pinned_bytes.
  out["pinned_ratio_ppm"] = ram_.pinned_bytes() * 1'000'000 / std::max<uint64_t>(ram_.capacity_bytes(), 1);
  const RunHeat::Counts runs = heat_.Count(clock_.Now());
  out["runs_hot"] = runs.hot;
  out["runs_warm"] = runs.warm;
  out["runs_cold"] = runs.cold;
  out["puts_live"] = puts_.size();
  out["metadata_bytes"] = ram_.metadata_bytes();
  out["bytes_per_part"] = ram_.parts() == 0 ? 0 : ram_.metadata_bytes() / ram_.parts();
  out["peers_live"] = peers_.size();
}

// The paths of the connected clients, oldest first, kPeerStatsMax at most.
void NodeShard::AddPeers(NodeStats& stats) const {
  std::vector<PeerId> ids;
  for (const auto& [id, peer] : peers_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const PeerId id : ids) {
    const PeerPath* path = transport_.Path(id);
    if (path == nullptr) continue;
    ++stats.counters[absl::StrCat("peer_transport_",
                                  std::string(PathKindName(path->kind)))];  // A gauge (F28).
    if (stats.peers.size() == kPeerStatsMax) continue;
    stats.peers.push_back(
        {.peer = absl::StrCat("client ", absl::Hex(peers_.at(id).client_id, absl::kZeroPad16)),
         .transport = std::string(PathKindName(path->kind)),
         .device = path->device,
         .memory = path->memory,
         .why = path->why});
  }
}

void NodeShard::SendStats(PeerId peer, const InFrame& frame) {
  const std::string encoded = ToWire(Stats()).SerializeAsString();
  const auto* bytes = reinterpret_cast<const std::byte*>(encoded.data());
  SendOrFence(peer, OutFrame{.type = FrameType::kStatsReply,
                             .request_id = frame.header.request_id,
                             .body = ByteView(bytes, encoded.size()),
                             .payload = {}});
}

}  // namespace cistern
