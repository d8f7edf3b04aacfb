#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "client/cli/router_words.h"
#include "client/cli/topology_view.h"
#include "client/control/router_link.h"
#include "client/internal/admin.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

constexpr Nanos kRouterDeadline = 2 * kSecond;
// A node that answers does so in a millisecond; one that does not must not hold up the others' figures for
// long.
constexpr std::chrono::milliseconds kNodeDeadline{300};
constexpr std::chrono::milliseconds kConnectDeadline{2500};  // A handshake takes at most kHandshakeDeadline.

Json StatsJson(const NodeStats& stats) {
  Json out;
  out["tiers"] = Json::array();
  for (const TierStats& tier : stats.tiers) {
    out["tiers"].push_back(Json{{"tier", tier.tier},
                                {"used_bytes", tier.used_bytes},
                                {"capacity_bytes", tier.capacity_bytes},
                                {"parts", tier.parts}});
    if (!tier.device.empty()) out["tiers"].back()["device"] = tier.device;
  }
  out["runs"] = Json::array();
  for (const RunStats& run : stats.runs) {
    out["runs"].push_back(Json{{"run", run.run},
                               {"temperature", run.temperature},
                               {"uses", run.uses},
                               {"blocks", run.blocks},
                               {"idle_ms", run.idle_ms}});
  }
  out["hit_blocks"] = stats.hit_blocks;
  out["miss_blocks"] = stats.miss_blocks;
  out["cpu_seconds"] = stats.cpu_seconds;
  out["peers"] = Json::array();
  for (const PeerStats& peer : stats.peers) {
    out["peers"].push_back(Json{{"peer", peer.peer},
                                {"transport", peer.transport},
                                {"device", peer.device},
                                {"memory", peer.memory},
                                {"why", peer.why}});
  }
  out["counters"] = Json::object();
  for (const auto& [name, value] : stats.counters) out["counters"][name] = value;
  return out;
}

Json NodeJson(const NodeRecord& record, const absl::StatusOr<NodeStats>& live) {
  Json out;
  out["id"] = record.entry.id;
  out["incarnation"] = record.entry.incarnation;
  out["state"] = std::string(NodeStateName(record.entry.state));
  out["address"] = record.entry.shards.empty() ? "" : record.entry.shards[0].tcp;
  out["shards"] = record.entry.shards.size();
  out["weight"] = record.entry.weight;
  out["last_heartbeat_ms_ago"] = record.last_heartbeat_ms_ago;
  out["stale"] = !live.ok();  // True: the figures are those of the last heartbeat.
  if (!live.ok()) out["stale_why"] = Words(live.status());
  out.update(StatsJson(live.ok() ? *live : record.stats));
  return out;
}

// "hbm (host stand-in)"
std::string TierName(const Json& tier) {
  const auto name = tier["tier"].get<std::string>();
  return tier.contains("device") ? name + " (" + tier["device"].get<std::string>() + ")" : name;
}

std::string StatusText(const Json& status) {
  const Json& router = status["router"];
  std::string out = router["id"].get<std::string>() + " at " + router["address"].get<std::string>() +
                    ", epoch " + status["epoch"].dump() + ", up " +
                    std::to_string(router["uptime_ms"].get<uint64_t>() / 1000) + " s\n";
  std::vector<std::vector<std::string>> rows = {
      {"node", "state", "inc", "tier", "used MiB", "of MiB", "parts", "hits", "misses", ""}};
  for (const Json& node : status["nodes"]) {
    const std::string stale = node["stale"].get<bool>() ? "last heartbeat's figures" : "";
    Json tiers = node["tiers"];
    if (tiers.empty())
      tiers.push_back(Json{{"tier", "-"}, {"used_bytes", 0}, {"capacity_bytes", 0}, {"parts", 0}});
    for (const Json& tier : tiers) {
      std::vector<std::string> notes;
      if (!stale.empty()) notes.push_back(stale);
      const bool degraded = node.contains("counters") && node["counters"].value("nvme_degraded", 0) != 0;
      if (degraded && tier["tier"] == "nvme") notes.emplace_back("the disk refuses writes");
      const auto mib = [&](const char* name) { return FormatNumber(tier[name].get<double>() / (1 << 20)); };
      rows.push_back({node["id"].get<std::string>(), node["state"].get<std::string>(),
                      node["incarnation"].dump(), TierName(tier), mib("used_bytes"), mib("capacity_bytes"),
                      tier["parts"].dump(), node["hit_blocks"].dump(), node["miss_blocks"].dump(),
                      absl::StrJoin(notes, "; ")});
    }
  }
  return out + FormatTable(rows);
}

}  // namespace

int RunStatus(const CliOptions& options) {
  const absl::StatusOr<ClusterStatus> cluster = FetchClusterStatus(options.router, kRouterDeadline);
  if (!cluster.ok()) return Fail(options.json, RouterWords(Words(cluster.status())));
  Result<std::unique_ptr<Client>> client =
      ConnectClient(options, [](ClientOptions& o) { o.window_bytes = 0; });

  Json out;
  out["epoch"] = cluster->map.epoch;
  out["router"] = Json{{"id", cluster->router_id},
                       {"address", cluster->address},
                       {"pid", cluster->pid},
                       {"uptime_ms", cluster->uptime_ms},
                       {"counters", Json(cluster->counters)}};
  out["nodes"] = Json::array();
  for (const NodeRecord& record : cluster->nodes) {
    absl::StatusOr<NodeStats> live = absl::UnavailableError("the node is gone");
    if (!client.ok()) {
      live = absl::UnavailableError(client.status().message());
    } else if (record.entry.state != NodeState::kGone) {
      live = internal::FetchNodeStats(*client.value(), record.entry.id, kNodeDeadline);
    }
    out["nodes"].push_back(NodeJson(record, live));
  }
  PrintResult(options.json, out, StatusText(out));
  return kExitDone;
}

int RunPeers(const CliOptions& options) {
  if (options.topology) {  // Of this machine: no cluster is needed for it.
    Json out{{"topology", TopologyJson(options.fabric)}};
    PrintResult(options.json, out, TopologyText(out["topology"]));
    return kExitDone;
  }
  Result<std::unique_ptr<Client>> client = ConnectClient(options);
  if (!client.ok()) return Fail(options.json, client.status().message());
  Json peers = Json::array();
  for (const PeerRow& row : internal::ConnectPeers(*client.value(), kConnectDeadline)) {
    const bool up = row.state == "up";
    peers.push_back(Json{{"from", "client"},
                         {"to", row.node + "/" + std::to_string(row.shard)},
                         {"path", up ? std::string(PathKindName(row.path.kind)) : row.state},
                         {"transport", up ? std::string(PathKindName(row.path.kind)) : ""},
                         {"device", row.path.device},
                         {"memory", row.path.memory},
                         {"why", row.why.empty() ? row.path.why : row.why}});
  }
  for (const NodeEntry& node : internal::Map(*client.value()).nodes) {
    const absl::StatusOr<NodeStats> live = internal::FetchNodeStats(*client.value(), node.id, kNodeDeadline);
    if (!live.ok()) continue;  // The client's own row says why it is not reached.
    for (const PeerStats& peer : live->peers) {
      peers.push_back(Json{{"from", node.id},
                           {"to", peer.peer},
                           {"path", peer.transport},
                           {"transport", peer.transport},
                           {"device", peer.device},
                           {"memory", peer.memory},
                           {"why", peer.why}});
    }
  }
  std::vector<std::vector<std::string>> rows = {{"from", "to", "path", "device", "memory", "why"}};
  for (const Json& peer : peers) {
    std::vector<std::string> row;
    for (const std::string& name : rows[0]) row.push_back(peer[name].get<std::string>());
    rows.push_back(row);
  }
  PrintResult(options.json, Json{{"peers", peers}}, FormatTable(rows));
  return kExitDone;
}

}  // namespace cistern
