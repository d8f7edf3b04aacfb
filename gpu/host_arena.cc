#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <deque>

#include "gpu/device_arena.h"

namespace cistern {
namespace {

// A copy is made when it is polled for, not when it is asked for: whoever reads too early is seen in tests.
class HostArena final : public DeviceArena {
 public:
  HostArena(std::byte* base, uint64_t bytes) : base_(base), bytes_(bytes) {}
  ~HostArena() override {
    RunAll();
    ::munmap(base_, bytes_);
  }

  std::string Describe() const override { return "host stand-in"; }
  uint64_t bytes() const override { return bytes_; }
  void* base() const override { return base_; }
  bool is_device_memory() const override { return false; }

  bool PinHost(std::byte* /*host*/, uint64_t /*bytes*/) override { return true; }

  uint64_t CopyIn(uint64_t offset, const std::byte* from, uint32_t bytes) override {
    return Start({.to = base_ + offset, .from = from, .bytes = bytes}, offset);
  }
  uint64_t CopyOut(uint64_t offset, std::byte* to, uint32_t bytes) override {
    return Start({.to = to, .from = base_ + offset, .bytes = bytes}, offset);
  }
  bool Poll(std::vector<DeviceCopyDone>& done) override {
    if (waiting_.empty()) return false;
    const uint64_t first = next_ - waiting_.size();
    for (size_t i = 0; i < waiting_.size(); ++i) done.push_back({.copy = first + i, .ok = true});
    RunAll();
    return true;
  }
  bool ReadNow(uint64_t offset, std::byte* to, uint32_t bytes) override {
    if (!Inside(offset, bytes)) return false;
    for (const Copy& copy : waiting_) std::memcpy(copy.to, copy.from, copy.bytes);  // Again when polled for.
    std::memcpy(to, base_ + offset, bytes);
    return true;
  }
  const std::string& error() const override { return error_; }

 private:
  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    uint32_t bytes = 0;
  };
  bool Inside(uint64_t offset, uint32_t bytes) {
    if (offset <= bytes_ && bytes <= bytes_ - offset) return true;
    error_ = "copy outside of the arena";
    return false;
  }
  uint64_t Start(const Copy& copy, uint64_t offset) {
    if (waiting_.size() == kDeviceCopiesMax || !Inside(offset, copy.bytes)) return 0;
    waiting_.push_back(copy);
    return next_++;
  }
  void RunAll() {
    for (const Copy& copy : waiting_) std::memcpy(copy.to, copy.from, copy.bytes);
    waiting_.clear();
  }

  std::byte* const base_;
  const uint64_t bytes_;
  std::deque<Copy> waiting_;
  uint64_t next_ = 1;
  std::string error_;
};

}  // namespace

std::unique_ptr<DeviceArena> MakeHostArena(uint64_t bytes, std::string& error) {
  void* base =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    error = std::string("host stand-in for device memory: ") + std::strerror(errno);
    return nullptr;
  }
  return std::make_unique<HostArena>(static_cast<std::byte*>(base), bytes);
}

}  // namespace cistern
