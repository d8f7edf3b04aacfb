#include "cache_node/disk/memory_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/check.h"

namespace cistern {

void MemoryFiles::Get(const File& file, uint64_t offset, std::byte* to, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t at = offset + done, in = at % kPieceBytes;
    const uint64_t share = std::min(bytes - done, kPieceBytes - in);
    const auto it = file.pieces.find(at / kPieceBytes);
    if (it == file.pieces.end()) {
      std::fill_n(to + done, share, std::byte{0});
    } else {
      std::copy_n(it->second.data() + in, share, to + done);
    }
    done += share;
  }
}

void MemoryFiles::Set(File& file, uint64_t offset, const std::byte* from, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t at = offset + done, in = at % kPieceBytes;
    const uint64_t share = std::min(bytes - done, kPieceBytes - in);
    std::vector<std::byte>& piece = file.pieces[at / kPieceBytes];
    if (piece.empty()) piece.resize(kPieceBytes);
    std::copy_n(from + done, share, piece.data() + in);
    done += share;
  }
}

void MemoryFiles::PowerCut(Random& random) {
  for (auto& [id, file] : files) {
    for (auto& [offset, before] : file.unsynced) {
      const uint64_t fate = random.Below(3);
      if (fate == 0) continue;  // Reached the medium after all.
      const size_t bytes =
          fate == 1 ? before.size() : random.Below(before.size() / 512) * 512;  // Or a part of it.
      Set(file, offset, before.data(), bytes);
    }
    file.unsynced.clear();
  }
}

absl::StatusOr<std::vector<FileId>> MemoryDisk::List() {
  std::vector<FileId> ids;
  for (const auto& [id, file] : files_->files) ids.push_back(id);
  return ids;
}

bool MemoryDisk::TrySubmit(const DiskRequest& request) {
  if (open_.size() >= kDiskDepthMax) return false;
  CISTERN_CHECK(request.offset % kDiskAlign == 0);
  if (request.kind == DiskRequest::Kind::kRead || request.kind == DiskRequest::Kind::kWrite) {
    CISTERN_CHECK(request.bytes % kDiskAlign == 0 &&
                  reinterpret_cast<uintptr_t>(request.data) % kDiskAlign == 0);
  }
  open_.push_back(request);
  ++requests;
  return true;
}

bool MemoryDisk::Poll(std::vector<DiskDone>& done) {
  std::vector<DiskRequest> now;
  std::swap(now, open_);
  for (size_t i = now.size(); i > 1; --i) std::swap(now[i - 1], now[random_.Below(i)]);
  bool any = false;
  for (const DiskRequest& request : now) {
    if (faults.delay > 0 && random_.Chance(faults.delay)) {
      open_.push_back(request);
      continue;
    }
    done.push_back(Do(request));
    any = true;
  }
  return any;
}

void MemoryDisk::Write(MemoryFiles::File& file, uint64_t offset, const std::byte* data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kDiskAlign) {
    const size_t piece = std::min<size_t>(kDiskAlign, bytes - at);
    auto& before = file.unsynced[offset + at];
    if (before.empty()) {  // A page's first change since the last sync.
      before.resize(kDiskAlign);
      MemoryFiles::Get(file, offset + at, before.data(), kDiskAlign);
    }
    MemoryFiles::Set(file, offset + at, data + at, piece);
  }
  written_bytes += bytes;
}

DiskDone MemoryDisk::Do(const DiskRequest& request) {
  using Kind = DiskRequest::Kind;
  const auto fail = [&](int error) { return DiskDone{.cookie = request.cookie, .error = error}; };
  if (request.kind == Kind::kCreate) {
    uint64_t total = request.bytes;
    for (const auto& [id, file] : files_->files) total += file.bytes;
    if (faults.writes_fail) return fail(EIO);
    if (total > faults.full_after) return fail(ENOSPC);
    files_->files[request.file] = {.bytes = request.bytes, .pieces = {}, .unsynced = {}};
    return fail(0);
  }
  if (request.kind == Kind::kRemove) {
    files_->files.erase(request.file);
    return fail(0);
  }
  const auto it = files_->files.find(request.file);
  if (it == files_->files.end()) return fail(ENOENT);
  MemoryFiles::File& file = it->second;
  if (request.kind == Kind::kSync) {
    if (faults.writes_fail) return fail(EIO);
    file.unsynced.clear();
    return fail(0);
  }
  if (request.offset >= file.bytes) return fail(request.kind == Kind::kRead ? 0 : ENOSPC);
  auto bytes = static_cast<uint32_t>(std::min<uint64_t>(request.bytes, file.bytes - request.offset));
  if (faults.short_io > 0 && random_.Chance(faults.short_io)) {
    bytes = static_cast<uint32_t>(1 + random_.Below(bytes));
  }
  const bool write = request.kind == Kind::kWrite;
  if (write && faults.nth_write > 0 && --faults.nth_write == 0) {
    if (faults.nth_error != 0) return fail(faults.nth_error);
    bytes = std::max(bytes / 2, 1u);
  }
  if (write ? faults.writes_fail || random_.Chance(faults.write_error)
            : faults.reads_fail || random_.Chance(faults.read_error)) {
    return fail(EIO);
  }
  if (write) {
    Write(file, request.offset, request.data, bytes);
  } else {
    MemoryFiles::Get(file, request.offset, request.data, bytes);
  }
  return DiskDone{.cookie = request.cookie, .error = 0, .bytes = bytes};
}

absl::Status MemoryDisk::ReadNow(FileId file, uint64_t offset, std::byte* data, uint32_t bytes) {
  const auto it = files_->files.find(file);
  if (it == files_->files.end()) return absl::NotFoundError("no such file");
  if (faults.reads_fail || random_.Chance(faults.read_error))
    return absl::DataLossError("read: Input/output error");
  if (offset + bytes > it->second.bytes) return absl::OutOfRangeError("the file ends before");
  MemoryFiles::Get(it->second, offset, data, bytes);
  return absl::OkStatus();
}

void MemoryDisk::Abandon() {
  for (const DiskRequest& request : open_) {
    const auto it = files_->files.find(request.file);
    if (request.kind != DiskRequest::Kind::kWrite || it == files_->files.end()) continue;
    const uint64_t pages = request.bytes / kDiskAlign;
    const uint64_t whole = random_.Below(pages + 1) * kDiskAlign;
    if (request.offset + whole <= it->second.bytes) Write(it->second, request.offset, request.data, whole);
  }
  open_.clear();
}

}  // namespace cistern
