#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "cache_node/disk/disk.h"

namespace cistern {

inline constexpr size_t kDiskWaitingMax = 4096;  // Requests that wait for a place in the disk's queue.
inline constexpr uint8_t kShortRetriesMax = 16;  // In a row, of transfers that moved less than a page.

// Requests with their ends: keeps what the disk has no place for, goes on where the disk moved fewer bytes
// than asked for (F40), and calls each end exactly once. Owner: DiskTier. Thread: the shard's. Lifetime: the
// disk outlives it; requests in flight must have ended, or the disk be gone, before their memory goes.
class DiskQueue {
 public:
  using Done = std::function<void(int error)>;  // errno; 0: all bytes moved.

  explicit DiskQueue(Disk& disk) : disk_(disk) {}

  // cookie is the queue's own. Callers bound what they ask for (kDiskWaitingMax in all).
  void Submit(DiskRequest request, Done done);
  // Calls the ends of what is done; true if anything was.
  bool Poll();
  size_t open() const { return open_; }
  Disk& disk() const { return disk_; }

 private:
  struct Row {
    DiskRequest request;
    Done done;
    bool live = false;
    uint8_t retries = 0;
  };
  void Pump();
  void Finish(uint64_t row, int error);

  Disk& disk_;
  std::vector<Row> rows_;
  std::vector<uint64_t> free_;
  std::deque<uint64_t> waiting_;
  std::vector<DiskDone> done_;
  size_t open_ = 0;
};

}  // namespace cistern
