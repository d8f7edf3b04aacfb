#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cache_node/disk/disk.h"
#include "core/random.h"

namespace cistern {

// What outlives a process: the files of a MemoryDisk, as a power cut would leave them.
struct MemoryFiles {
  struct File {
    uint64_t bytes = 0;
    std::map<uint64_t, std::vector<std::byte>> pieces;  // By number; what was never written is zeros.
    // Written and not synced: what a power cut may take back, page by page. Offset -> bytes before.
    std::map<uint64_t, std::vector<std::byte>> unsynced;
  };
  std::map<FileId, File> files;

  static constexpr uint64_t kPieceBytes = 1u << 20;
  static void Get(const File& file, uint64_t offset, std::byte* to, uint64_t bytes);
  static void Set(File& file, uint64_t offset, const std::byte* from, uint64_t bytes);

  // kill -9: all that was written stays. A power cut: each unsynced page stays or not, and may be torn.
  void PowerCut(Random& random);
};

// Disk in memory, with faults, for tests and the simulator. Requests are done in the order of `Poll`s,
// several of them in random order. Owner: the test. Lifetime: `files` outlives it; dropping the disk while
// requests are open is what a kill does: each open write happened, did not happen, or happened in part.
class MemoryDisk final : public Disk {
 public:
  struct Faults {
    double short_io = 0;     // Chance that a read or write moves fewer bytes than asked for.
    double delay = 0;        // Chance that a request is not done in this Poll, but perhaps in a later one.
    double read_error = 0;   // EIO.
    double write_error = 0;  // EIO; nothing is written.
    uint64_t full_after = UINT64_MAX;  // Bytes of all files; kCreate beyond fails with ENOSPC.
    uint64_t nth_write = 0;            // The write that fails with nth_error, counted from now; 0: none.
    int nth_error = 0;                 // 0: it moves half of its bytes and ends well.
    bool writes_fail = false;          // EIO for every write, sync and create.
    bool reads_fail = false;
  };

  MemoryDisk(std::shared_ptr<MemoryFiles> files, Random& random)
      : files_(std::move(files)), random_(random) {}
  ~MemoryDisk() override { Abandon(); }

  absl::StatusOr<std::vector<FileId>> List() override;
  bool TrySubmit(const DiskRequest& request) override;
  bool Poll(std::vector<DiskDone>& done) override;
  absl::Status ReadNow(FileId file, uint64_t offset, std::byte* data, uint32_t bytes) override;
  std::string Describe() const override { return "memory"; }

  // The process ends with requests open.
  void Abandon();

  Faults faults;
  uint64_t written_bytes = 0;
  uint64_t requests = 0;

 private:
  DiskDone Do(const DiskRequest& request);
  void Write(MemoryFiles::File& file, uint64_t offset, const std::byte* data, size_t bytes);

  std::shared_ptr<MemoryFiles> files_;
  Random& random_;
  std::vector<DiskRequest> open_;
};

}  // namespace cistern
