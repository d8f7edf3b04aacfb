#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cistern/client.h"
#include "client/cli/options.h"

namespace cistern {

inline constexpr uint64_t kBenchDataBytes =
    uint64_t{1} << 30;  // Parts that reads choose from, when the cluster has room.
inline constexpr uint64_t kBenchMemoryBytes =
    uint64_t{256} << 20;  // Destinations of reads, sources of writes: beyond any cache.
inline constexpr double kBenchCapacityShare = 0.6;

// The cluster a bench runs against: one client and what its nodes say of themselves. Owner: a bench; one
// thread.
class BenchCluster {
 public:
  // The error is one line.
  static absl::StatusOr<std::unique_ptr<BenchCluster>> Connect(const CliOptions& options);
  Client& client() { return *client_; }
  // "map", "socket", or "mixed" when nodes are reached on different paths.
  std::string path();
  bool over_unix();                                            // All nodes are reached over unix sockets.
  uint64_t capacity_bytes() const { return capacity_bytes_; }  // RAM of all nodes.
  // User and system time of this process and all nodes.
  double CpuSeconds();
  // Unavailable names the node that did not answer.
  absl::Status Stats(double* cpu_seconds, uint64_t* capacity_bytes);

 private:
  BenchCluster() = default;
  std::unique_ptr<Client> client_;
  std::vector<std::string> nodes_;
  uint64_t capacity_bytes_ = 0;
};

// A chain of `blocks` blocks that no other (purpose, number) has.
absl::StatusOr<Chain> MakeBenchChain(Client& client, const Layout& layout, uint64_t purpose, uint64_t number,
                                     uint32_t blocks);

// Stores the whole chain, from pages that repeat `memory`; parts that are there already count as stored.
absl::Status StoreChain(Client& client, const Chain& chain, std::byte* memory, uint64_t memory_bytes);

}  // namespace cistern
