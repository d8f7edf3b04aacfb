#include "tests/sim/sim_disk.h"

#include <cstddef>
#include <iterator>
#include <utility>

#include "core/check.h"

namespace cistern {
namespace {

constexpr uint64_t kSimDiskBytes = kExtentsMin * kExtentBytes;
constexpr double kShortIo = 0.05;       // Always, where anything goes wrong: it is no fault.
constexpr double kManifestLost = 0.15;  // Of power cuts.

}  // namespace

SimDisk::SimDisk(SimWorld& world, std::string name)
    : world_(world), name_(std::move(name)), write_through_(world.random.Chance(0.7)) {
  Heal();
}

std::unique_ptr<DiskTier> SimDisk::Open(Clock& clock, Random& random) {
  auto disk = std::make_unique<MemoryDisk>(files_, random);
  disk->faults = faults_;
  disk->faults.reads_fail =
      false;  // A node whose folder cannot be read does not start; unit tests have that.
  disk->faults.read_error = 0;
  MemoryDisk* const mine = disk.get();
  auto manifest = std::make_unique<Manifest>(MakeMemoryManifest(manifest_), manifest_, /*threaded=*/false);
  DiskTierOptions options;
  options.write_through = write_through_;
  options.log.capacity_bytes = kSimDiskBytes;
  options.log.ring_bytes = kWriteRingMin;
  absl::StatusOr<std::unique_ptr<DiskTier>> tier =
      DiskTier::Open(std::move(options), std::move(disk), std::move(manifest), clock, random.Next());
  if (!tier.ok()) world_.log.Fail(name_ + ": the disk does not open: " + tier.status().ToString());
  CISTERN_CHECK(tier.ok());
  mine->faults = faults_;
  disk_ = mine;
  return *std::move(tier);
}

void SimDisk::CountMarks(DiskTier& tier) const {
  SimLog& log = world_.log;
  const DiskTierCounters& c = tier.counters();
  log.Mark("disk_stored", c.stored_parts);
  log.Mark("disk_demoted", c.demoted_parts);
  log.Mark("disk_staged", c.staged_parts);
  log.Mark("disk_stage_failed", c.stage_failed_parts);
  log.Mark("disk_offload_dropped", c.offload_dropped_parts);
  const DiskLogCounters& l = tier.log().counters();
  log.Mark("disk_recovered", l.recovered_parts);
  if (l.recovered_parts != 0) log.Mark("disk_staged_after_a_restart", c.staged_parts);
  if (cut_before_) log.Mark("disk_recovered_after_a_power_cut", l.recovered_parts);
  log.Mark("disk_torn_tail", l.torn_tails);
  log.Mark("disk_degraded", l.degraded_times);
  log.Mark("disk_damage_found", l.corrupt_headers + l.corrupt_payloads + l.corrupt_footers);
  log.Mark("disk_read_error", l.read_errors);
  log.Mark("disk_full", l.no_space_errors);
  if (c.collisions != 0) log.Fail(name_ + " saw a hash collision on disk");
}

void SimDisk::PowerCut() {
  files_->PowerCut(world_.random);
  cut_before_ = true;
  if (!world_.random.Chance(kManifestLost)) return;
  manifest_.clear();  // As one that does not open is begun anew.
  world_.log.Mark("manifest_lost");
}

void SimDisk::Fault() {
  Random& random = world_.random;
  Heal();
  switch (random.Below(5)) {
    case 0:
      faults_.delay = random.Chance(0.5) ? 0.9 : 0.999;  // A turn of a waiting node is 0.1 ms.
      world_.log.Mark("disk_slow");
      break;
    case 1:
      faults_.read_error = random.Unit() * 0.3;
      break;
    case 2:
      faults_.write_error = random.Unit() * 0.3;
      break;
    case 3:
      faults_.writes_fail = true;
      faults_.reads_fail = random.Chance(0.3);
      break;
    default:
      faults_.full_after = kExtentBytes * random.Below(kExtentsMin);
  }
  world_.log.Event("disk fault", name_, static_cast<uint64_t>(faults_.delay * 1000), faults_.full_after);
  if (disk_ != nullptr) disk_->faults = faults_;
}

void SimDisk::Heal() {
  faults_ = {};
  if (!world_.options.calm) faults_.short_io = kShortIo;
  if (disk_ != nullptr) disk_->faults = faults_;
}

bool SimDisk::FlipBit() {
  if (files_->files.empty()) return false;
  auto file = files_->files.begin();
  std::advance(file, static_cast<ptrdiff_t>(world_.random.Below(files_->files.size())));
  auto& pieces = file->second.pieces;
  if (pieces.empty()) return false;
  auto piece = pieces.begin();
  std::advance(piece, static_cast<ptrdiff_t>(world_.random.Below(pieces.size())));
  const uint64_t at = world_.random.Below(piece->second.size());
  piece->second[at] ^= std::byte{1} << world_.random.Below(8);
  world_.log.Event("disk flip", name_, file->first, piece->first * MemoryFiles::kPieceBytes + at);
  return true;
}

}  // namespace cistern
