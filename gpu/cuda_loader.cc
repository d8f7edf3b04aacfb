// Finds the CUDA module at run time, so that one package serves machines with and without a GPU.
#include <dlfcn.h>

#include "core/object_folder.h"
#include "gpu/device_arena.h"

namespace cistern {
namespace {

constexpr char kModuleFile[] = "libcistern-cuda.so";
constexpr char kModuleSymbol[] = "cistern_make_cuda_arena";
using Maker = DeviceArena* (*)(int, uint64_t, std::string*);

// Beside the object that this code is in, then as the system finds libraries. Never unloaded.
Maker Load(std::string& why) {
  std::vector<std::string> candidates;
  const std::string folder = FolderOfObject(reinterpret_cast<const void*>(&MakeHostArena));
  for (const char* beside : {"/", "/../lib/"}) {
    if (!folder.empty()) candidates.push_back(folder + beside + kModuleFile);
  }
  candidates.emplace_back(kModuleFile);
  for (const std::string& candidate : candidates) {
    void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      if (why.empty()) why = dlerror();
      continue;
    }
    if (void* symbol = dlsym(handle, kModuleSymbol)) return reinterpret_cast<Maker>(symbol);
    why = candidate + " is of another version of cistern";
    return nullptr;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<DeviceArena> MakeCudaArena(int device, uint64_t bytes, std::string& error) {
  std::string why;
  const Maker make = Load(why);
  if (make == nullptr) {
    error = "no CUDA here (" + why + "); build with CUDA's toolkit on the machine, or take the host stand-in";
    return nullptr;
  }
  return std::unique_ptr<DeviceArena>(make(device, bytes, &error));
}

}  // namespace cistern
