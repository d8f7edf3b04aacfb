#include "client/cli/connect.h"

#include <algorithm>

#include "absl/status/status.h"
#include "client/cli/router_words.h"
#include "client/internal/admin.h"
#include "core/cluster_map.h"

namespace cistern {
namespace {

bool NobodyHasFabric(const ClusterMap& map) {
  return !map.nodes.empty() && std::all_of(map.nodes.begin(), map.nodes.end(), [](const NodeEntry& node) {
    return std::all_of(node.shards.begin(), node.shards.end(),
                       [](const ShardAddress& shard) { return shard.fabric.empty(); });
  });
}

}  // namespace

Result<std::unique_ptr<Client>> ConnectClient(const CliOptions& options,
                                              const std::function<void(ClientOptions&)>& adjust) {
  const FabricFlags& fabric = options.fabric;
  if (fabric.address.empty() && options.transport != "ucx") {
    const char* lone = !fabric.transports.empty() ? "--fabric-transports"
                       : !fabric.devices.empty()  ? "--fabric-devices"
                       : fabric.require_rdma      ? "--require-rdma"
                                                  : nullptr;
    if (lone != nullptr) {
      return Status(Code::kInvalidArgument,
                    std::string(lone) +
                        " does nothing without --fabric HOST:PORT or --transport ucx; give one "
                        "of them, or leave " +
                        lone + " away");
    }
  }
  ClientOptions client;
  client.router = options.router;
  client.transport = options.transport;
  client.wait_for_router = false;
  client.fabric = options.fabric.address;
  client.fabric_transports = options.fabric.transports;
  client.fabric_devices = options.fabric.devices;
  client.require_rdma = options.fabric.require_rdma;
  if (adjust) adjust(client);
  Result<std::unique_ptr<Client>> connected = Client::Connect(client);
  // Without this every part would be a miss of a peer that is gone. `peers` shows each node's reason.
  if (connected.ok() && options.transport == "ucx" && options.command != "peers" &&
      NobodyHasFabric(internal::Map(*connected.value()))) {
    return Status(
        Code::kFailedPrecondition,
        "--transport ucx reaches no node: none of the cluster has an address on the fabric; start nodes "
        "with --fabric HOST:PORT (docs/fabric.md), or leave --transport ucx away");
  }
  if (connected.ok()) return connected;
  return Status(connected.status().code(), RouterWords(connected.status().message()));
}

std::string Words(const absl::Status& status) {
  if (!status.message().empty()) return std::string(status.message());
  return absl::StatusCodeToString(status.code());
}

}  // namespace cistern
