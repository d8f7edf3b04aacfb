#include "cache_node/shard_paths.h"

#include <unistd.h>

#include <random>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cache_node/node_flags.h"
#include "core/clock.h"
#include "core/host_port.h"
#include "core/status_macros.h"
#include "transport/joined_transport.h"
#include "transport/socket_transport.h"

namespace cistern {
namespace {

// HOST:PORT of one shard: the ports follow each other, unless the system chooses.
std::string ShardHostPort(const std::string& first, uint32_t shard) {
  HostPort at = *ParseHostPort(first, PortZero::kAnyFree);
  if (at.port != 0) at.port = static_cast<uint16_t>(at.port + shard);
  return at.ToString();
}

}  // namespace

absl::StatusOr<std::shared_ptr<FabricDomain>> OpenNodeFabric(const NodeOptions& options) {
  if (options.fabric.empty()) return nullptr;
  FabricOptions fabric;
  fabric.transports = options.fabric_transports;
  fabric.devices = options.fabric_devices;
  fabric.require_rdma = options.require_rdma;
  absl::StatusOr<std::shared_ptr<FabricDomain>> domain = OpenFabric(fabric);
  if (!domain.ok())
    return absl::Status(domain.status().code(), absl::StrCat("--fabric: ", domain.status().message()));
  const FabricFacts& facts = (*domain)->facts();
  spdlog::info("fabric: {} over {}; memory types {}; GPU path: {}", facts.library,
               absl::StrJoin(facts.links, ", "), absl::StrJoin(facts.memory_types, ", "), facts.gpu_path);
  if (!facts.rdma) spdlog::warn("fabric: no RDMA device, so this node's CPU copies what readers get");
  spdlog::warn("fabric: {} serves whoever reaches it, and payloads are not encrypted: trusted networks only",
               options.fabric);
  return domain;
}

absl::StatusOr<std::unique_ptr<ShardLoop>> MakeShard(const NodeOptions& options,
                                                     const NodeShardOptions& shard_options,
                                                     const std::shared_ptr<FabricDomain>& fabric,
                                                     ShardAddress& address) {
  auto clock = std::make_unique<BootClock>();
  SocketOptions socket_options;
  if (options.transport == "socket") socket_options.why = "node runs with --transport socket";
  CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<SocketTransport> sockets,
                           SocketTransport::Create(*clock, socket_options));
  SocketTransport& listener = *sockets;
  std::unique_ptr<Transport> transport = std::move(sockets);
  Fabric* fabric_listener = nullptr;
  if (fabric != nullptr) {
    CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<Fabric> ucx, MakeFabric(fabric, *clock, FabricThreads::kOne));
    fabric_listener = ucx.get();
    CISTERN_ASSIGN_OR_RETURN(transport, JoinedTransport::Create(std::move(transport), std::move(ucx)));
  }
  std::random_device device;
  CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<ShardLoop> loop,
                           ShardLoop::Create(shard_options, std::move(transport), std::move(clock),
                                             uint64_t{device()} << 32 | device()));
  const std::string wanted = ShardHostPort(options.listen, shard_options.shard);
  const absl::StatusOr<std::string> bound = listener.Listen("tcp:" + wanted);
  if (!bound.ok()) {
    return absl::Status(bound.status().code(),
                        absl::StrCat("--listen ", wanted, ": ", bound.status().message(),
                                     "; give an address of this host and a free port, or port 0"));
  }
  address.tcp = AdvertisedAddress(bound->substr(std::string("tcp:").size()), options.advertise);
  if (fabric_listener != nullptr) {
    const std::string on_fabric = ShardHostPort(options.fabric, shard_options.shard);
    const absl::StatusOr<std::string> there = fabric_listener->Listen("ucx:" + on_fabric);
    if (!there.ok()) {
      return absl::Status(there.status().code(),
                          absl::StrCat("--fabric ", on_fabric, ": ", there.status().message()));
    }
    address.fabric = there->substr(std::string("ucx:").size());
  }
  if (options.transport == "socket" || options.transport == "ucx") return loop;
  const std::string name =
      absl::StrCat("cistern-", shard_options.node_id, "-", ::getpid(), "-", shard_options.shard);
  CISTERN_ASSIGN_OR_RETURN(const std::string unix_bound, listener.Listen("unix:" + name));
  address.unix_name = unix_bound.substr(std::string("unix:").size());
  return loop;
}

}  // namespace cistern
