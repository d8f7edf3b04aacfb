#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/fabric.h"

// What the fabric's module (libcistern-ucx.so) hands to whoever loads it. UCX is loaded with it, on the first
// OpenFabric: merely being linked with UCX would give a process its signal handlers, and make an engine need
// a library that it may never use.
namespace cistern {

inline constexpr uint32_t kFabricModuleVersion = 1;
inline constexpr char kFabricModuleFile[] = "libcistern-ucx.so";
inline constexpr char kFabricModuleSymbol[] = "cistern_fabric_module";

struct FabricModule {
  uint32_t version = kFabricModuleVersion;
  absl::StatusOr<std::shared_ptr<FabricDomain>> (*open)(const FabricOptions& options);
  absl::StatusOr<std::unique_ptr<Fabric>> (*make)(std::shared_ptr<FabricDomain> domain, Clock& clock,
                                                  FabricThreads threads);
};
using FabricModuleFunction = const FabricModule* (*)();

}  // namespace cistern
