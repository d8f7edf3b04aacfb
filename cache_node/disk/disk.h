#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"

namespace cistern {

inline constexpr uint32_t kDiskAlign = 4096;   // Of offsets, lengths and memory of every request.
inline constexpr uint32_t kDiskDepthMax = 64;  // Requests of one Disk in flight.

// A file of the disk's folder. Names on disk are made of this number alone, so no key can reach them (S07).
using FileId = uint32_t;

struct DiskRequest {
  enum class Kind : uint8_t {
    kRead,
    kWrite,
    kSync,    // What was written to the file before outlives a power cut.
    kCreate,  // Makes the file with `bytes` of space that later writes need not ask for again.
    kRemove,
  };
  Kind kind = Kind::kRead;
  FileId file = 0;
  uint64_t offset = 0;
  std::byte* data = nullptr;  // Stays valid until the request is done.
  uint32_t bytes = 0;
  uint64_t cookie = 0;
};

struct DiskDone {
  uint64_t cookie = 0;
  int error = 0;       // errno; 0: fine.
  uint32_t bytes = 0;  // Moved; fewer than asked for means: ask again for the rest.
};

// The files of one folder on NVMe: asynchronous, polled, aligned (DESIGN §5). Implementations: FileDisk
// (io_uring, or threads where it is refused) and MemoryDisk (tests and simulation, with faults).
// Owner: whoever owns the log. Thread: one, except where said. Nothing here retries or continues; DiskQueue
// does.
class Disk {
 public:
  virtual ~Disk() = default;
  // Files that are there, ascending.
  virtual absl::StatusOr<std::vector<FileId>> List() = 0;
  // Memory of many requests, so that it need not be mapped for each (fixed buffers). Once, best effort.
  virtual void RegisterMemory(Segment memory) { (void)memory; }
  // False: kDiskDepthMax requests are in flight.
  virtual bool TrySubmit(const DiskRequest& request) = 0;
  // Hands queued requests to the system and adds what is done; true if anything was.
  virtual bool Poll(std::vector<DiskDone>& done) = 0;
  // Waits for one aligned read; for starts and checks, not for serving. DataLoss: an I/O error; OutOfRange:
  // the file ends before.
  virtual absl::Status ReadNow(FileId file, uint64_t offset, std::byte* data, uint32_t bytes) = 0;
  // Readable when Poll would find something done; -1 where there is no such thing.
  virtual int WaitFd() const { return -1; }
  // "io_uring, O_DIRECT, fixed buffers", or what is missing and why.
  virtual std::string Describe() const = 0;
};

}  // namespace cistern
