#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Standard library alone: deploy/gpu_check.sh builds this room on machines with nothing but CUDA and CMake.
namespace cistern {

inline constexpr uint32_t kDeviceCopiesMax = 64;  // Of one arena in flight.

struct DeviceCopyDone {
  uint64_t copy = 0;
  bool ok = true;
};

// One region of device memory for KV parts, and copies between it and host memory in the order of a stream.
// Implementations: CUDA, and a stand-in of host memory for machines without a GPU.
//
// Owner: HbmTier. Thread: the shard's; nothing here waits but ReadNow and the destructor, which lets the
// copies under way end first. Errors are results, with their text in error(): a device that fails is a tier
// that takes nothing more.
class DeviceArena {
 public:
  virtual ~DeviceArena() = default;
  DeviceArena() = default;
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // "cuda 0: NVIDIA H200" or "host stand-in": what `status` shows.
  virtual std::string Describe() const = 0;
  virtual uint64_t bytes() const = 0;
  // What a fabric registers (GPUDirect), and whether that is device memory.
  virtual void* base() const = 0;
  virtual bool is_device_memory() const = 0;

  // Makes copies from and to this host memory fast: locked, and known to the device, for this arena's life.
  // It stays mapped for so long. False: copies work as before, slower.
  virtual bool PinHost(std::byte* host, uint64_t bytes) = 0;

  // Starts a copy; its number, or 0: kDeviceCopiesMax are in flight, or the device has failed. Host memory
  // stays as it is until the copy is done. Copies are done in the order in which they were started.
  virtual uint64_t CopyIn(uint64_t offset, const std::byte* from, uint32_t bytes) = 0;
  virtual uint64_t CopyOut(uint64_t offset, std::byte* to, uint32_t bytes) = 0;
  // Adds what is done; true if anything was.
  virtual bool Poll(std::vector<DeviceCopyDone>& done) = 0;
  // Waits: all that was started before, then this.
  virtual bool ReadNow(uint64_t offset, std::byte* to, uint32_t bytes) = 0;
  // Why the last call that failed did; empty: none has.
  virtual const std::string& error() const = 0;
};

// Host memory that stands for a device; `error` says why when there is none.
std::unique_ptr<DeviceArena> MakeHostArena(uint64_t bytes, std::string& error);
// Memory of a CUDA device. Null with `error` where there is no such device, too little memory, or no CUDA in
// this build.
std::unique_ptr<DeviceArena> MakeCudaArena(int device, uint64_t bytes, std::string& error);

}  // namespace cistern
