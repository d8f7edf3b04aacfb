#include "cache_node/disk/disk_queue.h"

#include <cerrno>
#include <utility>

#include "core/check.h"

namespace cistern {

void DiskQueue::Submit(DiskRequest request, Done done) {
  CISTERN_CHECK(waiting_.size() < kDiskWaitingMax);
  if (free_.empty()) {
    free_.push_back(rows_.size());
    rows_.emplace_back();
  }
  const uint64_t row = free_.back();
  free_.pop_back();
  request.cookie = row;
  rows_[row] = {request, std::move(done), true, 0};
  ++open_;
  waiting_.push_back(row);
  Pump();
}

void DiskQueue::Pump() {
  while (!waiting_.empty() && disk_.TrySubmit(rows_[waiting_.front()].request)) waiting_.pop_front();
}

bool DiskQueue::Poll() {
  Pump();
  done_.clear();  // Also when nothing is open: the disk takes back the signal of the last end.
  if (!disk_.Poll(done_)) return false;
  std::vector<DiskDone> done = std::move(done_);  // An end may submit, and even poll.
  for (const DiskDone& one : done) {
    CISTERN_CHECK(one.cookie < rows_.size() && rows_[one.cookie].live);
    DiskRequest& request = rows_[one.cookie].request;
    const bool moves = request.kind == DiskRequest::Kind::kRead || request.kind == DiskRequest::Kind::kWrite;
    if (one.error == EINTR || one.error == EAGAIN) {
      waiting_.push_front(one.cookie);
    } else if (one.error != 0 || !moves || one.bytes >= request.bytes) {
      Finish(one.cookie, one.error);
    } else if (const uint32_t whole = one.bytes / kDiskAlign * kDiskAlign; whole == 0) {
      // Nothing moved, nothing said: the file ends here, or the device is broken.
      if (one.bytes == 0 || ++rows_[one.cookie].retries > kShortRetriesMax) {
        Finish(one.cookie, EIO);
      } else {
        waiting_.push_front(one.cookie);
      }
    } else {
      rows_[one.cookie].retries = 0;
      request.offset += whole;
      request.data += whole;
      request.bytes -= whole;
      waiting_.push_front(one.cookie);
    }
  }
  done.clear();
  done_ = std::move(done);
  Pump();
  return true;
}

void DiskQueue::Finish(uint64_t row, int error) {
  const Done done = std::move(rows_[row].done);
  rows_[row] = {};
  free_.push_back(row);
  --open_;
  done(error);
}

}  // namespace cistern
