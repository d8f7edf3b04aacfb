// Host code: no kernels, so a C++ compiler with CUDA's headers builds it as nvcc does.
#include <cuda_runtime_api.h>

#include <cstring>
#include <deque>

#include "gpu/device_arena.h"

namespace cistern {
namespace {

std::string Words(const char* what, cudaError_t error) {
  return std::string(what) + ": " + cudaGetErrorString(error);
}

// One allocation, one stream, one event a copy. Copies from memory that is not pinned wait inside of the
// driver, so the node pins its RAM arena.
class CudaArena final : public DeviceArena {
 public:
  static std::unique_ptr<CudaArena> Make(int device, uint64_t bytes, std::string& error) {
    std::unique_ptr<CudaArena> arena(new CudaArena(device, bytes));
    const auto failed = [&error](const char* what, cudaError_t result) {
      if (result == cudaSuccess) return false;
      error = Words(what, result);
      return true;
    };
    cudaDeviceProp properties{};
    if (failed("cudaSetDevice", cudaSetDevice(device)) ||
        failed("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, device)) ||
        failed("cudaMalloc", cudaMalloc(&arena->base_, bytes)) ||
        failed("cudaStreamCreate", cudaStreamCreateWithFlags(&arena->stream_, cudaStreamNonBlocking))) {
      return nullptr;
    }
    for (uint32_t i = 0; i < kDeviceCopiesMax; ++i) {
      cudaEvent_t event = nullptr;
      if (failed("cudaEventCreate", cudaEventCreateWithFlags(&event, cudaEventDisableTiming))) return nullptr;
      arena->events_.push_back(event);
    }
    arena->name_ = "cuda " + std::to_string(device) + ": " + properties.name;
    return arena;
  }

  ~CudaArena() override {
    (void)cudaSetDevice(device_);
    if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
    for (const Copy& copy : waiting_) (void)cudaEventDestroy(copy.event);
    for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    for (void* host : pinned_) (void)cudaHostUnregister(host);
    if (base_ != nullptr) (void)cudaFree(base_);
  }

  std::string Describe() const override { return name_; }
  uint64_t bytes() const override { return bytes_; }
  void* base() const override { return base_; }
  bool is_device_memory() const override { return true; }

  bool PinHost(std::byte* host, uint64_t bytes) override {
    (void)cudaSetDevice(device_);
    const cudaError_t result = cudaHostRegister(host, bytes, cudaHostRegisterPortable);
    if (result != cudaSuccess) {
      (void)cudaGetLastError();  // A refusal only; the device works on.
      error_ = Words("cudaHostRegister", result);
      return false;
    }
    pinned_.push_back(host);
    return true;
  }

  uint64_t CopyIn(uint64_t offset, const std::byte* from, uint32_t bytes) override {
    return Inside(offset, bytes) ? Start(At(offset), from, bytes, cudaMemcpyHostToDevice) : 0;
  }
  uint64_t CopyOut(uint64_t offset, std::byte* to, uint32_t bytes) override {
    return Inside(offset, bytes) ? Start(to, At(offset), bytes, cudaMemcpyDeviceToHost) : 0;
  }

  bool Poll(std::vector<DeviceCopyDone>& done) override {
    bool any = false;
    while (!waiting_.empty()) {
      const Copy copy = waiting_.front();
      const cudaError_t state = cudaEventQuery(copy.event);
      if (state == cudaErrorNotReady) return any;
      waiting_.pop_front();
      events_.push_back(copy.event);
      if (state != cudaSuccess) Fail("copy", state);
      done.push_back({copy.number, state == cudaSuccess});
      any = true;
    }
    return any;
  }

  bool ReadNow(uint64_t offset, std::byte* to, uint32_t bytes) override {
    if (failed_ || !Inside(offset, bytes)) return false;
    (void)cudaSetDevice(device_);
    cudaError_t result = cudaMemcpyAsync(to, At(offset), bytes, cudaMemcpyDeviceToHost, stream_);
    if (result == cudaSuccess) result = cudaStreamSynchronize(stream_);
    if (result != cudaSuccess) Fail("read", result);
    return result == cudaSuccess;
  }
  const std::string& error() const override { return error_; }

 private:
  struct Copy {
    uint64_t number = 0;
    cudaEvent_t event = nullptr;
  };
  CudaArena(int device, uint64_t bytes) : device_(device), bytes_(bytes) {}

  std::byte* At(uint64_t offset) const { return static_cast<std::byte*>(base_) + offset; }
  bool Inside(uint64_t offset, uint32_t bytes) {
    if (offset <= bytes_ && bytes <= bytes_ - offset) return true;
    error_ = "copy outside of the arena";
    return false;
  }
  void Fail(const char* what, cudaError_t result) {
    failed_ = true;  // CUDA's errors stick: nothing on this device works after most of them.
    error_ = Words(what, result);
  }
  uint64_t Start(void* to, const void* from, uint32_t bytes, cudaMemcpyKind kind) {
    if (failed_ || events_.empty()) return 0;
    (void)cudaSetDevice(device_);  // Of this thread; another arena may have chosen another.
    cudaError_t result = cudaMemcpyAsync(to, from, bytes, kind, stream_);
    if (result == cudaSuccess) result = cudaEventRecord(events_.back(), stream_);
    if (result != cudaSuccess) {
      Fail("starting a copy", result);
      return 0;
    }
    waiting_.push_back({next_, events_.back()});
    events_.pop_back();
    return next_++;
  }

  const int device_;
  const uint64_t bytes_;
  std::string name_;
  void* base_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_;  // Free ones.
  std::deque<Copy> waiting_;         // Oldest first.
  std::vector<void*> pinned_;        // Host memory that the device knows.
  uint64_t next_ = 1;
  bool failed_ = false;
  std::string error_;
};

}  // namespace

#ifdef CISTERN_CUDA_MODULE
// In a module of its own, which cuda_loader.cc loads where there is a driver.
extern "C" DeviceArena* cistern_make_cuda_arena(int device, uint64_t bytes, std::string* error) {
  return CudaArena::Make(device, bytes, *error).release();
}
#else
std::unique_ptr<DeviceArena> MakeCudaArena(int device, uint64_t bytes, std::string& error) {
  return CudaArena::Make(device, bytes, error);
}
#endif

}  // namespace cistern
