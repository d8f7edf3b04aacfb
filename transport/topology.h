#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

// Which NIC lies near what: GPUs and NUMA nodes of a machine, and the NICs that their bytes should take.
namespace cistern {

inline constexpr size_t kRailsMax = 4;  // NICs that one connection's bytes are spread over.

struct TopologyNic {
  std::string name;  // "mlx5_0": as --fabric-devices takes it, with ":1" behind it.
  std::string bus;   // "0000:1a:00.0"
  int numa = -1;
};
struct TopologyGpu {
  std::string name;  // "cuda0", or the bus id where no driver names it.
  std::string bus;
  int numa = -1;
};
enum class Nearness : uint8_t { kSameSwitch = 0, kSameNuma = 1, kSameMachine = 2 };
std::string_view NearnessName(Nearness nearness);  // "same PCI switch", "same NUMA node", "another NUMA node"

// The NICs for one GPU or NUMA node: all that are equally near, kRailsMax at most, in the order of their
// names.
struct NicChoice {
  std::string of;  // "gpu cuda0", "numa 1"
  std::vector<std::string> nics;
  Nearness nearness = Nearness::kSameMachine;
};
struct Topology {
  std::vector<int> numa_nodes;
  std::vector<TopologyNic> nics;
  std::vector<TopologyGpu> gpus;
  std::vector<NicChoice> choices;  // One per GPU, then one per NUMA node; none without a NIC.
};

// Of this machine, or as hwloc recorded it in `xml` (the file's content). InvalidArgument: not such a record.
// Unimplemented: built without hwloc.
absl::StatusOr<Topology> ReadTopology(const std::string& xml = {});

}  // namespace cistern
