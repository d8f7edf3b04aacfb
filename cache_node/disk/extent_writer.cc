#include "cache_node/disk/extent_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache_node/disk/crash_point.h"
#include "core/check.h"
#include "core/crc32c.h"

namespace cistern {

ExtentWriter::ExtentWriter(DiskQueue& queue, Clock& clock, Segment ring, WriterEvents events)
    : queue_(queue), clock_(clock), ring_(ring), events_(std::move(events)) {
  CISTERN_CHECK(ring.bytes >= kWriteRingMin && ring.bytes % kPageBytes == 0);
}

bool ExtentWriter::FitsHead(uint32_t record_bytes, uint32_t parts) const {
  const auto entries = static_cast<uint32_t>(head_->entries.size()) + std::max(parts, 1u);
  return entries <= kEntriesPerExtentMax &&
         uint64_t{head_->end} + record_bytes + FooterBytes(entries) <= kExtentBytes;
}

// Where it does not fit before the ring's end, that end is skipped.
bool ExtentWriter::FitsRing(uint64_t bytes) const {
  const uint64_t to_end = ring_.bytes - ring_head_;
  const uint64_t skipped = bytes > to_end ? to_end : 0;
  return used_ + skipped + bytes <= ring_.bytes;
}

uint32_t ExtentWriter::head_room() const {
  if (!head_.has_value()) return 0;
  const uint32_t taken = head_->end + FooterBytes(static_cast<uint32_t>(head_->entries.size()) + 1);
  return taken >= kExtentBytes ? 0 : kExtentBytes - taken;
}

bool ExtentWriter::HasRoom(uint32_t record_bytes, uint32_t parts) {
  if (head_.has_value() && !FitsHead(record_bytes, parts) && !CloseHead()) return false;
  if (!head_.has_value() && !OpenHead()) return false;
  const uint32_t header = head_->end == 0 ? kPageBytes : 0;
  return FitsRing(record_bytes + header);
}

bool ExtentWriter::OpenHead() {
  const std::optional<FreshExtent> fresh = events_.next_extent();
  if (!fresh.has_value()) return false;
  head_ = Head{.extent = fresh->extent, .use = fresh->use};
  return true;
}

// Writes the footer behind the extent's records. False: the ring has no room for it yet.
bool ExtentWriter::CloseHead() {
  const auto count = static_cast<uint32_t>(head_->entries.size());
  const uint32_t bytes = FooterBytes(count);
  if (head_->end != 0) {
    if (!FitsRing(bytes)) return false;
    std::byte* to = Take(head_->extent, kExtentBytes - bytes, bytes, /*alone=*/true);
    EncodeFooter(
        {.extent = head_->extent, .use = head_->use, .records = head_->records, .data_end = head_->end},
        head_->entries, to);
    Batch& batch = batches_.back();
    batch.footer = true;
    batch.state = Batch::State::kWaiting;
    batch.entries = std::move(head_->entries);
    batch.records = head_->end;  // Of a footer: where the records end.
  }
  head_.reset();
  seal_asked_ = false;
  return true;
}

std::byte* ExtentWriter::Take(uint32_t extent, uint32_t offset, uint32_t bytes, bool alone) {
  Batch* last = batches_.empty() ? nullptr : &batches_.back();
  const bool filling = last != nullptr && last->state == Batch::State::kFilling;
  const bool follows = filling && !alone && last->extent == extent && last->offset + last->bytes == offset &&
                       last->ring_at + last->bytes == ring_head_ && ring_head_ + bytes <= ring_.bytes;
  if (!follows) {
    if (filling) last->state = Batch::State::kWaiting;
    Batch batch{.extent = extent, .offset = offset, .since = clock_.Now()};
    if (ring_head_ + bytes > ring_.bytes) {
      batch.skipped = ring_.bytes - ring_head_;
      ring_head_ = 0;
    }
    batch.ring_at = ring_head_;
    used_ += batch.skipped;
    batches_.push_back(std::move(batch));
    last = &batches_.back();
  }
  std::byte* to = ring_.data + ring_head_;
  last->bytes += bytes;
  ring_head_ += bytes;
  used_ += bytes;
  return to;
}

bool ExtentWriter::Append(RecordHeader& header, absl::Span<const std::byte* const> data, bool& damaged) {
  if (!Begin(header, data)) return false;
  uint64_t budget = UINT64_MAX;
  damaged = Step(budget) == Copied::kDamaged;
  return !damaged;
}

bool ExtentWriter::Begin(RecordHeader& header, absl::Span<const std::byte* const> data) {
  CISTERN_CHECK(!is_copying());
  const uint32_t record_bytes = header.RecordBytes();
  if (!HasRoom(record_bytes, static_cast<uint32_t>(header.parts.size()))) return false;
  const bool first = head_->end == 0;
  const uint32_t at = first ? kPageBytes : head_->end;
  const uint32_t bytes = record_bytes + (first ? kPageBytes : 0);
  std::byte* to = Take(head_->extent, at + record_bytes - bytes, bytes, false);
  if (first) {
    EncodeExtentHeader({.extent = head_->extent, .use = head_->use}, to);
    to += kPageBytes;
  }
  header.extent = head_->extent;
  header.page = at / kPageBytes;
  header.use = head_->use;
  damaged_.clear();
  head_->end = at;  // The extent's header, if it is new, is there whatever becomes of the record.
  copying_ =
      Copying{.header = &header, .data = {data.begin(), data.end()}, .to = to, .end = at + record_bytes};
  return true;
}

ExtentWriter::Copied ExtentWriter::Step(uint64_t& budget) {
  Copying& copying = *copying_;
  std::byte* payload = copying.to + kPageBytes;
  const auto& parts = copying.header->parts;
  while (copying.part < parts.size() && !copying.lost) {
    const RecordHeader::Part& part = parts[copying.part];
    if (copying.filled < part.at) {
      std::memset(payload + copying.filled, 0, part.at - copying.filled);
      copying.filled = part.at;
    }
    const uint32_t done = copying.filled - part.at;
    const auto now = static_cast<uint32_t>(std::min<uint64_t>(part.length - done, budget));
    copying.crc = CopyCrc32c(payload + copying.filled, copying.data[copying.part] + done, now, copying.crc);
    copying.filled += now;
    copied_bytes_ += now;
    budget -= now;
    if (done + now < part.length) return Copied::kMore;
    if (copying.crc != part.crc) damaged_.push_back(copying.part);
    copying.crc = 0;
    ++copying.part;
  }
  return EndCopy();
}

ExtentWriter::Copied ExtentWriter::EndCopy() {
  const Copying copied = *std::exchange(copying_, std::nullopt);
  if (copied.lost) return Copied::kLost;
  RecordHeader& header = *copied.header;
  const uint32_t record_bytes = header.RecordBytes();
  std::memset(copied.to + kPageBytes + copied.filled, 0, record_bytes - kPageBytes - copied.filled);
  Batch& batch = batches_.back();
  if (!damaged_.empty()) {  // Its place stays, as a gap that every scan steps over.
    std::memset(copied.to, 0, kPageBytes);
  } else {
    EncodeRecordHeader(header, copied.to);
    AppendEntries(header, batch.entries);
    AppendEntries(header, head_->entries);
    ++batch.records;
    ++head_->records;
    ++appended_;
  }
  head_->end = copied.end;
  if (batch.bytes >= kBatchBytes) batch.state = Batch::State::kWaiting;
  CrashHere(CrashPoint::kRecordStaged);
  return damaged_.empty() ? Copied::kDone : Copied::kDamaged;
}

const std::byte* ExtentWriter::Peek(uint32_t extent, uint32_t offset, uint32_t bytes) const {
  for (const Batch& batch : batches_) {
    if (batch.extent != extent || offset < batch.offset || offset + bytes > batch.offset + batch.bytes)
      continue;
    return ring_.data + batch.ring_at + (offset - batch.offset);
  }
  return nullptr;
}

bool ExtentWriter::Poll() {
  const uint64_t before = ended_ + first_serial_ + writes_open_;
  if (seal_asked_ && head_.has_value() && !is_copying()) CloseHead();
  Retire();
  if (batches_.empty()) return before != ended_ + first_serial_ + writes_open_;
  const Nanos now = clock_.Now();
  StartWrites(now);
  StartSync(now);
  return before != ended_ + first_serial_ + writes_open_;
}

// What waits for the end of a request needs no time: that end wakes.
Nanos ExtentWriter::NextWake() const {
  Nanos wake = kNever;
  const bool may_write = writes_open_ < kWritesInFlightMax;
  bool may_sync = !sync_open_;  // As far as all before is written.
  for (const Batch& batch : batches_) {
    may_sync = may_sync && !batch.lost && batch.state == Batch::State::kWritten;
    if (batch.lost) continue;
    if (batch.state == Batch::State::kWaiting && may_write) return 0;
    // What is being copied goes on with whoever copies.
    if (batch.state == Batch::State::kFilling && may_write && !is_copying())
      wake = std::min(wake, batch.since + kFlushAfter);
    if (may_sync) wake = std::min(wake, batch.since + kSyncAfter);
  }
  return wake;
}

void ExtentWriter::StartWrites(Nanos now) {
  for (size_t i = 0; i < batches_.size() && writes_open_ < kWritesInFlightMax; ++i) {
    Batch& batch = batches_[i];
    const bool due =
        batch.state == Batch::State::kWaiting || (batch.state == Batch::State::kFilling && !is_copying() &&
                                                  (seal_asked_ || now >= batch.since + kFlushAfter));
    if (!due || batch.lost) continue;
    batch.state = Batch::State::kWriting;
    ++writes_open_;
    written_bytes_ += batch.bytes;
    const uint64_t serial = first_serial_ + i;
    if (batch.footer) CrashHere(CrashPoint::kFooterSubmitted);
    queue_.Submit({.kind = DiskRequest::Kind::kWrite,
                   .file = batch.extent,
                   .offset = batch.offset,
                   .data = ring_.data + batch.ring_at,
                   .bytes = batch.bytes},
                  [this, serial](int error) { OnWritten(serial, error); });
    CrashHere(CrashPoint::kBatchSubmitted);
  }
}

void ExtentWriter::OnWritten(uint64_t serial, int error) {
  --writes_open_;
  Batch& batch = At(serial);
  batch.state = Batch::State::kWritten;
  batch.since = clock_.Now();
  CrashHere(CrashPoint::kBatchWritten);
  if (error != 0 && !batch.lost) Fail(error);
}

// Syncs the oldest batches that are written and lie in one extent.
void ExtentWriter::StartSync(Nanos now) {
  if (sync_open_ || batches_.front().lost) return;
  const uint32_t extent = batches_.front().extent;
  uint64_t bytes = 0, count = 0;
  Nanos oldest = now;
  for (const Batch& batch : batches_) {
    if (batch.state != Batch::State::kWritten || batch.lost || batch.extent != extent) break;
    bytes += batch.bytes;
    oldest = std::min(oldest, batch.since);
    ++count;
  }
  if (count == 0) return;
  const bool due =
      bytes >= kSyncBytes || now >= oldest + kSyncAfter || used_ * 2 > ring_.bytes || seal_asked_;
  if (!due) return;
  sync_open_ = true;
  ++syncs_;
  for (uint64_t i = 0; i < count; ++i) batches_[i].syncing = true;
  const uint64_t first_after = first_serial_ + count;
  queue_.Submit({.kind = DiskRequest::Kind::kSync, .file = extent},
                [this, first_after](int error) { OnSynced(first_after, error); });
}

void ExtentWriter::OnSynced(uint64_t first_after, int error) {
  sync_open_ = false;
  for (Batch& batch : batches_) batch.syncing = false;
  if (error != 0) return Fail(error);
  CrashHere(CrashPoint::kBatchDurable);
  while (first_serial_ < first_after && !batches_.front().lost) {
    Batch batch = std::move(batches_.front());
    batches_.pop_front();
    ++first_serial_;
    used_ -= batch.skipped + batch.bytes;
    if (batch.footer) {
      CrashHere(CrashPoint::kExtentSealed);
      events_.sealed(batch.extent, batch.records, std::move(batch.entries), true);
    } else {
      ended_ += batch.records;
      events_.durable(batch.extent, batch.entries);
    }
  }
  if (batches_.empty()) ring_head_ = 0, used_ = 0;
}

// Nothing that is not durable will be; the open extent takes no more, unless it has not begun: it has no part
// in this.
void ExtentWriter::Fail(int error) {
  std::optional<Head> head;
  if (head_.has_value() && head_->end != 0) head = std::exchange(head_, std::nullopt);
  if (copying_.has_value()) copying_->lost = true;
  seal_asked_ = false;
  for (Batch& batch : batches_) {
    if (batch.lost) continue;
    batch.lost = true;
    if (batch.state == Batch::State::kFilling || batch.state == Batch::State::kWaiting) {
      batch.state = Batch::State::kWritten;  // It never goes out.
    }
    if (batch.footer) {
      events_.sealed(batch.extent, batch.records, std::move(batch.entries), false);
      continue;
    }
    ended_ += batch.records;
    events_.lost(batch.extent, batch.entries);
  }
  if (head.has_value()) events_.sealed(head->extent, head->end, std::move(head->entries), false);
  events_.failed(error);
}

// Lost batches leave the ring once the disk is done with their memory.
void ExtentWriter::Retire() {
  if (sync_open_) return;
  while (!batches_.empty() && batches_.front().lost && batches_.front().state == Batch::State::kWritten) {
    used_ -= batches_.front().skipped + batches_.front().bytes;
    batches_.pop_front();
    ++first_serial_;
  }
  if (batches_.empty()) ring_head_ = 0, used_ = 0;
}

void ExtentWriter::Seal() { seal_asked_ = head_.has_value() || !batches_.empty(); }

}  // namespace cistern
