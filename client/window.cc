#include "client/window.h"

#include <string>

#include "core/check.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

size_t RoundUp(size_t bytes) { return (bytes + kWindowAlignment - 1) / kWindowAlignment * kWindowAlignment; }

}  // namespace

absl::StatusOr<PutWindow> PutWindow::Create(size_t bytes) {
  if (bytes > kWindowBytesMax) return absl::InvalidArgumentError("window_bytes above kWindowBytesMax");
  const size_t buffers = RoundUp(bytes);
  CISTERN_ASSIGN_OR_RETURN(
      MemoryRegion region,
      MemoryRegion::Create("cistern-put-window", buffers + kStagingChunks * kStagingChunkBytes,
                           /*seal_future_write=*/false));
  return PutWindow(std::move(region), buffers);
}

PutWindow::PutWindow(MemoryRegion region, size_t buffers_bytes)
    : region_(std::move(region)), buffers_bytes_(buffers_bytes) {
  if (buffers_bytes_ != 0) free_[0] = buffers_bytes_;
  for (uint32_t i = kStagingChunks; i-- > 0;) chunks_.push_back(i);
}

void* PutWindow::Allocate(size_t bytes) {
  if (bytes == 0 || bytes > buffers_bytes_) return nullptr;
  const uint64_t need = RoundUp(bytes);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < need) continue;
    const uint64_t offset = it->first;
    const uint64_t left = it->second - need;
    free_.erase(it);
    if (left != 0) free_[offset + need] = left;
    used_[offset] = need;
    allocated_bytes_ += need;
    return region_.data() + offset;
  }
  return nullptr;
}

bool PutWindow::Free(void* buffer) {
  const std::byte* at = static_cast<const std::byte*>(buffer);
  if (at < region_.data() || at >= region_.data() + buffers_bytes_) return false;
  const auto used = used_.find(static_cast<uint64_t>(at - region_.data()));
  if (used == used_.end()) return false;
  uint64_t offset = used->first;
  uint64_t bytes = used->second;
  allocated_bytes_ -= bytes;
  used_.erase(used);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
    }
  }
  free_[offset] = bytes;
  return true;
}

std::optional<uint64_t> PutWindow::OffsetOf(const void* data, size_t bytes) const {
  const std::byte* at = static_cast<const std::byte*>(data);
  if (at < region_.data() || at >= region_.data() + buffers_bytes_) return std::nullopt;
  const auto offset = static_cast<uint64_t>(at - region_.data());
  if (bytes > buffers_bytes_ - offset) return std::nullopt;
  return offset;
}

std::optional<uint32_t> PutWindow::TakeChunk() {
  if (chunks_.empty()) return std::nullopt;
  const uint32_t chunk = chunks_.back();
  chunks_.pop_back();
  return chunk;
}

void PutWindow::ReturnChunk(uint32_t chunk) {
  CISTERN_CHECK(chunk < kStagingChunks && chunks_.size() < kStagingChunks);
  chunks_.push_back(chunk);
}

}  // namespace cistern
