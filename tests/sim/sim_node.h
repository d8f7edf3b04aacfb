#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache_node/node_shard.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_world.h"
#include "transport/loopback_transport.h"

namespace cistern {

// One cache node: a host that runs one process after another. The shards are the real ones; the registrar is
// modelled. Owner: SimCluster. One thread.
class SimNode {
 public:
  SimNode(SimWorld& world, std::string id, uint32_t shards);
  ~SimNode();

  void Start();
  // The process is gone at once. kReset: as after kill -9; kSilent: as after a power cut.
  void Crash(LoopbackNetwork::Crash how);
  void Stop();  // In good order: peers are told.
  // As under SIGSTOP: nothing is polled until `until`, the kernel goes on taking bytes. A past time thaws.
  void Freeze(Nanos until);
  // One bit of some part's bytes in memory flips.
  bool FlipBit();
  // Something is wrong with a shard's device, for a while or for good. Nothing without disks.
  void DiskFault();
  // Its wall clock is off by that much from now on.
  void SetWallSkew(int64_t seconds);
  void Heal();

  bool up() const { return process_ != nullptr; }
  bool registered() const { return process_ != nullptr && process_->registered; }
  bool frozen() const { return world_.clock.Now() < frozen_until_; }
  const std::string& id() const { return id_; }
  bool Poll();
  Nanos NextWake() const;

  // After everybody is quiet: no lease, no put, and every byte of the arena accounted for (F14).
  std::string CheckQuiet() const;
  uint64_t evicted() const;

 private:
  struct Shard {
    std::unique_ptr<LoopbackTransport> transport;
    std::unique_ptr<NodeShard> shard;
    uint64_t evicted_before = 0;
    Nanos wake =
        0;  // As asked for after its last Poll: "a millisecond from now" is asked for anew at each look.
  };
  struct Process {
    uint64_t boot_nonce = 0;
    uint64_t incarnation = 0;
    bool registered = false;
    std::unique_ptr<Random> random;
    std::vector<Shard> shards;
  };
  bool IsNow(uint64_t boot_nonce) const { return process_ != nullptr && process_->boot_nonce == boot_nonce; }
  void RegistrarTurn(uint64_t boot_nonce);
  void SendRegister();
  void SendHeartbeat();
  void TakeMarks();
  void CountMarks(const NodeShard& shard);
  void EndProcess();
  int64_t WallNow() const { return world_.UnixNow() + wall_skew_s_; }

  SimWorld& world_;
  const std::string id_;
  const uint32_t shard_count_;
  HostClock clock_;
  std::vector<std::unique_ptr<SimDisk>> disks_;  // One a shard, or none. Outlive the process.
  int64_t wall_skew_s_ = 0;
  std::unique_ptr<Process> process_;
  Nanos frozen_until_ = 0;
};

}  // namespace cistern
