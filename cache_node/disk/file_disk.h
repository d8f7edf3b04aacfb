#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache_node/disk/disk.h"
#include "cache_node/disk/io_threads.h"

struct io_uring;

namespace cistern {

inline constexpr size_t kOpenFilesMax = 256;  // Descriptors a FileDisk keeps.
inline constexpr unsigned kIoWorkersMax = 4;  // Of the kernel's threads that submit writes and sync.

struct FileDiskOptions {
  bool uring = true;   // False: threads alone.
  bool direct = true;  // False: through the page cache.
};

// Disk over the files `extent-XXXXXXXX` of one folder. io_uring with batched submission and fixed buffers,
// or, where the kernel refuses it, a few threads; O_DIRECT, or the page cache where the file system refuses
// that. Describe says which and why. The folder is opened once; nothing outside of it can be reached through
// it, and no link in it is followed (S07). Owner: the node. Thread: that of the owner's shard.
class FileDisk final : public Disk {
 public:
  // Makes the folder when missing. InvalidArgument with the cause when it cannot be made or written.
  static absl::StatusOr<std::unique_ptr<FileDisk>> Open(const std::string& folder,
                                                        FileDiskOptions options = {});
  ~FileDisk() override;
  // What a file is called in the folder.
  static std::string NameOf(FileId file);

  absl::StatusOr<std::vector<FileId>> List() override;
  void RegisterMemory(Segment memory) override;
  bool TrySubmit(const DiskRequest& request) override;
  bool Poll(std::vector<DiskDone>& done) override;
  absl::Status ReadNow(FileId file, uint64_t offset, std::byte* data, uint32_t bytes) override;
  int WaitFd() const override { return wake_fd_; }
  std::string Describe() const override;
  bool direct() const { return direct_; }
  bool uses_uring() const { return ring_ != nullptr; }

 private:
  struct Handle {
    int fd = -1;
    uint32_t open_requests = 0;
    uint64_t used_at = 0;
  };
  explicit FileDisk(std::string folder);
  absl::Status Prepare(FileDiskOptions options);
  void ProbeDirect();
  void StartRing();
  Handle* HandleOf(FileId file, int& error);
  void CloseSome();
  bool PrepareOnRing(const DiskRequest& request, int fd);
  void PostToThreads(const DiskRequest& request, int fd);
  DiskDone CreateFile(const DiskRequest& request) const;
  int Flags() const;

  const std::string folder_;
  int folder_fd_ = -1;
  int wake_fd_ = -1;
  bool direct_ = true;
  bool fixed_ = false;
  std::string why_not_direct_, why_not_uring_, why_not_fixed_;
  Segment memory_{};
  std::unique_ptr<io_uring> ring_;
  std::unique_ptr<IoThreads> threads_;
  absl::flat_hash_map<FileId, Handle> handles_;
  std::vector<DiskRequest> rows_;  // Requests in flight; the system's cookie is a place here.
  std::vector<uint32_t> free_rows_;
  std::vector<DiskDone> failed_;  // Ended before they began.
  std::vector<DiskDone> ended_;   // Scratch.
  uint64_t uses_ = 0;
  uint32_t in_flight_ = 0;
  uint32_t on_ring_ = 0;      // Part of in_flight_.
  uint32_t unsubmitted_ = 0;  // Part of on_ring_.
  uint32_t idle_polls_ = 0;
  bool drain_due_ = false;  // The last Poll found something.
};

}  // namespace cistern
