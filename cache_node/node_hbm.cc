#include "cache_node/node_hbm.h"

#include <cstdlib>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"
#include "gpu/device_arena.h"

namespace cistern {

absl::StatusOr<std::unique_ptr<HbmTier>> OpenNodeHbm(const NodeOptions& options, Clock& clock,
                                                     Random& random) {
  HbmTierOptions tier;
  tier.bytes = options.hbm_bytes / options.shards;
  if (options.hbm_move_bytes_per_s != 0) tier.move_bytes_per_s = options.hbm_move_bytes_per_s;
  std::string error;
  std::unique_ptr<DeviceArena> device =
      options.hbm_device == "host" ? MakeHostArena(tier.bytes, error)
                                   : MakeCudaArena(std::atoi(options.hbm_device.c_str()), tier.bytes, error);
  if (device == nullptr)
    return absl::NotFoundError(absl::StrCat("--hbm-device ", options.hbm_device, ": ", error));
  spdlog::info(
      "hbm: {} MiB on {}; disk -> host memory -> device, at most {} MiB/s beside what plans wait for",
      tier.bytes >> 20, device->Describe(), tier.move_bytes_per_s >> 20);
  return HbmTier::Create(std::move(tier), std::move(device), clock, random);
}

void PinForDevice(NodeShard& shard) {
  if (shard.hbm() == nullptr) return;
  DeviceArena& device = shard.hbm()->device();
  if (!device.PinHost(shard.arena().data(), shard.arena().bytes()))
    spdlog::warn("hbm: RAM could not be pinned, copies are slower: {}", device.error());
}

}  // namespace cistern
