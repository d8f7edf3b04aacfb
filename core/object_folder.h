#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <string>

namespace cistern {

// Folder of the program or library that `address` is in: where its modules lie. Empty when that cannot be
// found out, never the current folder, which may be anybody's.
inline std::string FolderOfObject(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  std::string file = info.dli_fname;
  if (file.find('/') == std::string::npos) {  // A program that was found by PATH: this is argv[0].
    char path[4096];
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof(path));
    file.assign(path, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  }
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash);
}

}  // namespace cistern
