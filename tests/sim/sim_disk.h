#pragma once

#include <memory>
#include <string>

#include "cache_node/disk/disk_tier.h"
#include "cache_node/disk/manifest.h"
#include "cache_node/disk/memory_disk.h"
#include "tests/sim/sim_world.h"

namespace cistern {

// The folder of one simulated shard: what outlives its processes, and what its device does wrong meanwhile.
// Owner: SimNode. One thread.
class SimDisk {
 public:
  SimDisk(SimWorld& world, std::string name);

  // The tier of a new process; the log finds what the last one left. `random` and `clock` outlive it.
  std::unique_ptr<DiskTier> Open(Clock& clock, Random& random);
  // What this process' tier went through.
  void CountMarks(DiskTier& tier) const;
  // The process is about to go.
  void Closed() { disk_ = nullptr; }
  // After the process is gone. What was not synced stays, goes or is torn; the manifest may be lost as well.
  void PowerCut();

  // Until the next fault or Heal: slow, short, failing or full.
  void Fault();
  void Heal();
  // One bit of some extent flips. False: nothing was ever written.
  bool FlipBit();

 private:
  SimWorld& world_;
  const std::string name_;
  const bool write_through_;
  std::shared_ptr<MemoryFiles> files_ = std::make_shared<MemoryFiles>();
  ManifestValues manifest_;
  MemoryDisk* disk_ = nullptr;  // Of the process there is.
  MemoryDisk::Faults faults_;
  bool cut_before_ = false;
};

}  // namespace cistern
