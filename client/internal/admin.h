#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cistern/client.h"
#include "client/core/client_types.h"
#include "core/bytes.h"
#include "core/cluster_map.h"
#include "core/node_stats.h"
#include "transport/messages.h"

// What the CLI and tests need of a Client beyond its public face. Not installed. Thread-safe like Client;
// calls wait, driving the client's Poll meanwhile, for at most `deadline`.
namespace cistern::internal {

struct DropTotals {
  uint64_t dropped_parts = 0;
  uint64_t kept_parts = 0;
};

// Live figures of one node over the data path, summed over its shards.
absl::StatusOr<NodeStats> FetchNodeStats(Client& client, const std::string& node,
                                         std::chrono::milliseconds deadline);
// Drops every part that is not leased on one node.
absl::StatusOr<DropTotals> DropAll(Client& client, const std::string& node,
                                   std::chrono::milliseconds deadline);
// Sets a tenant's limits on one node, shared out over its shards, and tells all tenants' figures; a request
// without a tenant only asks.
absl::StatusOr<QuotaReply> AskQuota(Client& client, const std::string& node, QuotaRequest request,
                                    std::chrono::milliseconds deadline);
// Connects to every shard of the map and waits until each is up or has failed; then the rows.
std::vector<PeerRow> ConnectPeers(Client& client, std::chrono::milliseconds deadline);
std::vector<PeerRow> Peers(Client& client);
ClusterMap Map(Client& client);
// Arenas of nodes on this host that this client has mapped (read-only), for measuring memcpy of the same
// memory. Valid while the peer stays up.
std::vector<ConstSegment> MappedArenas(Client& client);
// Leading blocks present, without touching hit counters; and who owns each block by the current map.
struct ProbeResult {
  uint32_t blocks = 0;
  PartResult stopped_by = PartResult::kOk;
  MissReason why = MissReason::kNone;
  uint64_t hit_tokens = 0;          // By the hit rule, in layouts of several groups.
  uint64_t history_tokens = 0;      // What the history alone would allow.
  std::vector<std::string> owners;  // One per block of the chain.
};
absl::StatusOr<ProbeResult> Probe(Client& client, const Chain& chain, std::chrono::milliseconds deadline);

}  // namespace cistern::internal
