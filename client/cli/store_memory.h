#pragma once

#include <cstddef>
#include <vector>

#include "cistern/client.h"

namespace cistern {

// Where the stores' bytes are made: in the put window when it has room, so that nodes on this host take them
// from there. Owner: a command; the client outlives it.
class StoreMemory {
 public:
  StoreMemory(Client& client, size_t bytes)
      : client_(client), window_(client.AllocateBuffer(bytes)), heap_(window_ != nullptr ? 0 : bytes) {}
  ~StoreMemory() {
    if (window_ != nullptr) client_.FreeBuffer(window_);
  }
  StoreMemory(const StoreMemory&) = delete;
  StoreMemory& operator=(const StoreMemory&) = delete;
  std::byte* data() { return window_ != nullptr ? static_cast<std::byte*>(window_) : heap_.data(); }

 private:
  Client& client_;
  void* const window_;
  std::vector<std::byte> heap_;
};

}  // namespace cistern
