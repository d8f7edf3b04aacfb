#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/arena.h"
#include "core/clock.h"
#include "transport/transport.h"

// The third path, `ucx`: RDMA and whatever else UCX speaks. This header names no UCX, so that everybody may
// include it; transport/ucx implements it, and a build without UCX answers Unimplemented.
namespace cistern {

// Peers of a fabric have this bit in their id, so that they are told from those of sockets.
inline constexpr PeerId kFabricPeerBit = PeerId{1} << 31;
inline constexpr bool IsFabricPeer(PeerId peer) { return (peer & kFabricPeerBit) != 0; }

struct FabricOptions {
  std::string transports;     // UCX's names: "\rc_verbs", "tcp"; empty: all but shared memory, UD.
  std::string devices;        // UCX's names: "mlx5_0:1,mlx5_1:1"; empty: all.
  std::string source;         // Numeric address that connections start from; empty: as routed.
  bool require_rdma = false;  // Without an RDMA device: FailedPrecondition that names what is missing.
  size_t peers_max = kPeersMax;
  // Reads by get where the owner's CPU has to answer them, too: for tests of that code without a device.
  // Never otherwise: UCX 1.13 ends the process of an owner whose reader dies meanwhile.
  bool emulated_gets = false;
};

// What this process got when it opened the fabric.
struct FabricFacts {
  std::string library;                    // "UCX 1.13.1"
  std::vector<std::string> links;         // "rc_verbs/mlx5_0:1", "tcp/eth0", as UCX found them.
  std::vector<std::string> memory_types;  // "host", "cuda", as asked of UCX.
  bool rdma = false;                      // One of the links reads remote memory without the remote CPU.
  bool gpu_direct = false;                // GPU memory may be the target of a transfer.
  std::string gpu_path;                   // How bytes reach a GPU, and why so.
};

// The device side of a process: opened once, shared by the transports of its shards.
class FabricDomain {
 public:
  virtual ~FabricDomain() = default;
  virtual const FabricFacts& facts() const = 0;
};

// Unimplemented: built without UCX. FailedPrecondition: require_rdma, or none of the named devices is here.
absl::StatusOr<std::shared_ptr<FabricDomain>> OpenFabric(const FabricOptions& options);

// Who calls a transport: one thread all its life, or several that take turns (a client's waiting threads).
enum class FabricThreads : uint8_t { kOne, kInTurns };

class Fabric : public Transport {
 public:
  // "ucx:HOST:PORT", port 0: any free one. Returns the address as bound. Never called: nothing listens.
  virtual absl::StatusOr<std::string> Listen(const std::string& address) = 0;
};

// A transport on an opened fabric; keeps the domain alive.
absl::StatusOr<std::unique_ptr<Fabric>> MakeFabric(std::shared_ptr<FabricDomain> domain, Clock& clock,
                                                   FabricThreads threads);

}  // namespace cistern
