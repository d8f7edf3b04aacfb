#include "cache_node/node_flags.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/disk_log.h"
#include "cache_node/ram_tier.h"
#include "cache_node/slab_pool.h"
#include "core/cluster_map.h"
#include "core/status_macros.h"
#include "proto/control.h"
#include "transport/socket_address.h"

namespace cistern {

absl::Status ValidateNodeOptions(const NodeOptions& options) {
  const auto read = [](const char* flag, const std::string& text, PortZero zero) -> absl::StatusOr<HostPort> {
    absl::StatusOr<HostPort> at = ParseHostPort(text, zero);
    if (!at.ok()) return absl::InvalidArgumentError(absl::StrCat(flag, " ", at.status().message()));
    return at;
  };
  CISTERN_RETURN_IF_ERROR(read("--router", options.router, PortZero::kRefused).status());
  CISTERN_ASSIGN_OR_RETURN(const HostPort listen, read("--listen", options.listen, PortZero::kAnyFree));
  if (IsWildcardHost(listen.host) && options.advertise.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen ", options.listen,
        " takes every address and names none; give --advertise IP, by which others reach this node"));
  }
  if (!options.advertise.empty()) {
    const std::string sample = absl::StrCat(options.advertise, ":1");
    const auto advertised = ParseHostPort(sample);
    if (!advertised.ok() || !SocketAddress::Parse("tcp:" + sample).ok() || IsWildcardHost(advertised->host))
      return absl::InvalidArgumentError(
          absl::StrCat("--advertise \"", options.advertise, "\" is not an IP address that others can reach"));
  }
  if (options.shards < 1 || options.shards > kShardsPerNodeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shards ", options.shards, " is not within 1 to ", kShardsPerNodeMax));
  }
  if (listen.port != 0 && listen.port + options.shards - 1 > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", options.listen, " leaves no ports for ", options.shards, " shards"));
  }
  if (!options.fabric.empty()) {
    CISTERN_ASSIGN_OR_RETURN(const HostPort fabric, read("--fabric", options.fabric, PortZero::kAnyFree));
    if (fabric.port != 0 && fabric.port + options.shards - 1 > 65535) {
      return absl::InvalidArgumentError(
          absl::StrCat("--fabric ", options.fabric, " leaves no ports for ", options.shards, " shards"));
    }
  } else if (options.transport == "ucx" || options.require_rdma) {
    return absl::InvalidArgumentError("--fabric HOST:PORT is needed with --transport ucx and --require-rdma");
  }
  if (!options.node_id.empty() && !IsNodeId(options.node_id)) {
    return absl::InvalidArgumentError("--node-id: letters, digits, '.', '_' and '-' only, not first");
  }
  if (options.nvme_bytes != 0 && options.nvme_bytes / options.shards < uint64_t{kExtentsMin} * kExtentBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nvme ", options.nvme_bytes, " is too little: the log of each of ", options.shards,
                     " shard(s) needs ", (uint64_t{kExtentsMin} * kExtentBytes) >> 20, " MiB"));
  }
  if ((options.hbm_bytes != 0) != !options.hbm_device.empty()) {
    return absl::InvalidArgumentError("--hbm SIZE and --hbm-device host|N go together");
  }
  if (!options.hbm_device.empty() && options.hbm_device != "host" &&
      options.hbm_device.find_first_not_of("0123456789") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hbm-device \"", options.hbm_device, "\" is neither host nor the number of a device"));
  }
  const uint64_t of_shard = options.ram_bytes / options.shards;
  if (of_shard < SlabPool::SlabBytes(of_shard)) {
    return absl::InvalidArgumentError(absl::StrCat("--ram ", options.ram_bytes,
                                                   " is too little: ", options.shards, " shard(s) need ",
                                                   SlabPool::SlabBytes(of_shard) >> 20, " MiB each"));
  }
  if (const absl::Status policy = RamTier::CheckPolicy(options.policy); !policy.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--policy: ", policy.message()));
  }
  return absl::OkStatus();
}

absl::Status CheckLoneFlags(const NodeOptions& options, const std::function<bool(const char* flag)>& given) {
  const bool nvme = options.nvme_bytes != 0, hbm = options.hbm_bytes != 0, fabric = !options.fabric.empty();
  const struct {
    const char* flag;
    const char* needs;
    bool there;
  } pairs[] = {
      {"--on-demotion", "--nvme SIZE", nvme},
      {"--write-through", "--nvme SIZE", nvme},
      {"--nvme-daily-writes", "--nvme SIZE", nvme},
      {"--crash-at", "--nvme SIZE", nvme},
      {"--hbm-bandwidth", "--hbm SIZE", hbm},
      {"--fabric-transports", "--fabric HOST:PORT", fabric},
      {"--fabric-devices", "--fabric HOST:PORT", fabric},
  };
  for (const auto& pair : pairs) {
    if (pair.there || !given(pair.flag)) continue;
    return absl::InvalidArgumentError(absl::StrCat(pair.flag, " does nothing without ", pair.needs,
                                                   "; give that too, or leave ", pair.flag, " away"));
  }
  return absl::OkStatus();
}

std::string AdvertisedAddress(const std::string& bound, const std::string& advertise) {
  if (advertise.empty()) return bound;
  return absl::StrCat(advertise, bound.substr(bound.rfind(':')));
}

std::string FindClusterKey(const std::string& data_dir) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(data_dir, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // A path that ends in '/'.
  for (int up = 0; up < 3; ++up, folder = folder.parent_path()) {
    const std::filesystem::path file = folder / "cluster.key";
    if (std::filesystem::exists(file, error)) return file.string();
  }
  return "";
}

}  // namespace cistern
