#include <dlfcn.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/object_folder.h"
#include "transport/fabric.h"
#include "transport/fabric_module.h"

// Finds and loads the fabric's module, once. It is never unloaded.
namespace cistern {
namespace {

// Beside the object that this code is in (program or libcistern.so), in its neighbour folders, then as the
// system finds libraries.
std::vector<std::string> Candidates() {
  std::vector<std::string> all;
  const std::string folder = FolderOfObject(reinterpret_cast<const void*>(&OpenFabric));
  for (const char* beside : {"/", "/../lib/", "/../bin/"}) {
    if (!folder.empty()) all.push_back(absl::StrCat(folder, beside, kFabricModuleFile));
  }
  all.emplace_back(kFabricModuleFile);
  return all;
}

absl::StatusOr<const FabricModule*> Load() {
#ifndef CISTERN_HAS_UCX
  return absl::UnimplementedError(
      "this build has no UCX; install libucx-dev (deploy/install_deps.sh) and configure again");
#endif
  std::string why;
  for (const std::string& candidate : Candidates()) {
    void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      // What is there and does not load (UCX missing) says more than what is not there.
      const std::string error = dlerror();
      if (why.empty() || error.find("No such file") == std::string::npos ||
          error.find("libuc") != std::string::npos)
        why = error;
      continue;
    }
    const auto function = reinterpret_cast<FabricModuleFunction>(dlsym(handle, kFabricModuleSymbol));
    const FabricModule* module = function == nullptr ? nullptr : function();
    if (module != nullptr && module->version == kFabricModuleVersion) return module;
    return absl::FailedPreconditionError(absl::StrCat(candidate, " is of another version of cistern"));
  }
  return absl::UnimplementedError(
      absl::StrCat("the fabric's module does not load: ", why,
                   "; it needs UCX (Debian: libucx0) and has to lie beside the program"));
}

const absl::StatusOr<const FabricModule*>& Module() {
  static const absl::StatusOr<const FabricModule*> module = Load();
  return module;
}

}  // namespace

absl::StatusOr<std::shared_ptr<FabricDomain>> OpenFabric(const FabricOptions& options) {
  if (!Module().ok()) return Module().status();
  return (*Module())->open(options);
}

absl::StatusOr<std::unique_ptr<Fabric>> MakeFabric(std::shared_ptr<FabricDomain> domain, Clock& clock,
                                                   FabricThreads threads) {
  if (!Module().ok()) return Module().status();
  return (*Module())->make(std::move(domain), clock, threads);
}

}  // namespace cistern
