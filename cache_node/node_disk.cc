#include "cache_node/node_disk.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <spdlog/spdlog.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cache_node/disk/crash_point.h"
#include "cache_node/disk/file_disk.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint64_t kRingBytesMax = 64u << 20;
constexpr char kShardFolder[] = "shard-";

uint64_t RingBytes(const NodeOptions& options) {
  return std::clamp<uint64_t>(options.ram_bytes / options.shards / 4, kWriteRingMin, kRingBytesMax);
}

// A full disk does no harm, but whoever sized the log should hear of it before it is full.
void WarnOfTooLittleSpace(const std::string& dir, uint64_t log_bytes) {
  std::error_code error;
  uint64_t used = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir, error))
    used += file.is_regular_file(error) ? file.file_size(error) : 0;
  const std::filesystem::space_info space = std::filesystem::space(dir, error);
  if (error || space.available + used >= log_bytes) return;
  spdlog::warn(
      "nvme: --nvme is {} MiB, but {} has {} MiB and its file system {} MiB free: the log ends where the "
      "disk does",
      log_bytes >> 20, dir, used >> 20, space.available >> 20);
}

}  // namespace

uint64_t DiskMemoryBytes(const NodeOptions& options) {
  if (options.nvme_bytes == 0) return 0;
  return options.shards * (RingBytes(options) + DiskLog::kReadMemoryBytes + kRecordBytesMax);
}

absl::StatusOr<std::unique_ptr<DiskTier>> OpenNodeDisk(const NodeOptions& options, uint32_t shard,
                                                       Clock& clock, uint64_t seed) {
  const std::string dir =
      shard == 0 ? options.data_dir : absl::StrCat(options.data_dir, "/", kShardFolder, shard);
  CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<FileDisk> disk, FileDisk::Open(dir + "/nvme"));
  CISTERN_ASSIGN_OR_RETURN(OpenedManifest opened, OpenRocksdbManifest(dir + "/manifest"));
  if (opened.rebuilt) {
    spdlog::warn(
        "nvme: the manifest is made anew from the extents ({}); the old one is kept as manifest.damaged",
        opened.why);
  }
  CISTERN_ASSIGN_OR_RETURN(ManifestValues values, opened.store->LoadAll());
  auto manifest = std::make_unique<Manifest>(std::move(opened.store), std::move(values), /*threaded=*/true);
  DiskTierOptions tier;
  tier.write_through = options.write_through;
  tier.daily_write_bytes = options.nvme_daily_write_bytes / options.shards;
  tier.manifest_rebuilt = opened.rebuilt;
  const uint64_t tier_bytes = options.nvme_bytes / options.shards;
  tier.log.capacity_bytes = tier_bytes;
  tier.log.ring_bytes = RingBytes(options);
  tier.log.log = [](bool warn, const std::string& line) {
    if (warn) {
      spdlog::warn("{}", line);
    } else {
      spdlog::info("{}", line);
    }
  };
  CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<DiskTier> made, DiskTier::Open(std::move(tier), std::move(disk),
                                                                          std::move(manifest), clock, seed));
  WarnOfTooLittleSpace(dir + "/nvme", tier_bytes);
  spdlog::info("nvme: {} MiB in {}/nvme by {}, {}, {} extents to scan",
               options.nvme_bytes / options.shards >> 20, dir, made->Describe(),
               options.write_through ? "write-through" : "on-demotion", made->log().scan_left());
  return made;
}

absl::Status PrepareShardFolders(const NodeOptions& options) {
  const auto folder = [&](uint32_t shard) {
    return absl::StrCat(options.data_dir, "/", kShardFolder, shard);
  };
  std::error_code error;
  uint32_t there = 1;
  while (std::filesystem::exists(folder(there), error)) ++there;
  if (std::filesystem::exists(options.data_dir + "/nvme", error)) {
    if (there == options.shards) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "the logs in ", options.data_dir, " are of ", there, " shard(s), not of ", options.shards,
        "; start with --shards ", there, ", or move nvme, manifest and shard-* away to begin anew"));
  }
  // A first start, or one that was cut off before it had made the first shard's log: nothing is in them yet.
  for (uint32_t shard = there; shard-- > options.shards;) std::filesystem::remove(folder(shard), error);
  for (uint32_t shard = 1; shard < options.shards; ++shard) {
    std::filesystem::create_directories(folder(shard), error);
    if (error) return absl::PermissionDeniedError(absl::StrCat(folder(shard), ": ", error.message()));
  }
  return absl::OkStatus();
}

absl::Status ArmCrashFlag(const std::string& text) {
  const size_t colon = text.find(':');
  uint32_t point = 0;
  uint64_t pass = 1;
  const std::string first = text.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "1" : text.substr(colon + 1);
  if (!absl::SimpleAtoi(first, &point) || !absl::SimpleAtoi(rest, &pass) || point < 1 ||
      point > kCrashPointMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--crash-at \"", text, "\" is not POINT or POINT:PASS with a POINT of 1 to ", kCrashPointMax));
  }
  ArmCrashPoint(static_cast<uint8_t>(point), pass);
  return absl::OkStatus();
}

}  // namespace cistern
