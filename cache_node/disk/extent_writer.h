#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "cache_node/disk/disk_queue.h"
#include "cache_node/disk/record.h"
#include "core/clock.h"

namespace cistern {

inline constexpr uint32_t kBatchBytes = 1u << 20;   // A batch this long is written at once.
inline constexpr uint32_t kWritesInFlightMax = 8;   // Batches on their way to the disk.
inline constexpr uint64_t kSyncBytes = 16u << 20;   // Written and not synced: then a sync.
inline constexpr Nanos kFlushAfter = kMillisecond;  // A record waits no longer for company.
inline constexpr Nanos kSyncAfter = 2 * kMillisecond;
// What a footer, a record and a batch need of the ring at the least.
inline constexpr uint64_t kWriteRingMin = 12u << 20;

// Where the writer goes on when an extent is full.
struct FreshExtent {
  uint32_t extent = 0;
  ExtentUse use;
};
// What becomes of what was appended. Called from Poll and Append; none of them may call the writer.
struct WriterEvents {
  std::function<std::optional<FreshExtent>()> next_extent;  // None: no free extent yet.
  // Synced. In the order of appending, each record once in either of the two.
  std::function<void(uint32_t extent, absl::Span<const FooterEntry>)> durable;
  std::function<void(uint32_t extent, absl::Span<const FooterEntry>)> lost;
  // The extent takes no more records. footer: it is on disk; else `entries` is all there is to know of it.
  std::function<void(uint32_t extent, uint32_t data_end, std::vector<FooterEntry> entries, bool footer)>
      sealed;
  // A write, or a sync, failed. All that was not durable is lost, the extent sealed as far as it had begun.
  std::function<void(int error)> failed;
};

// The end of the log: copies records into a ring of aligned memory, writes them in batches, syncs them in
// groups, and closes a full extent with its footer. What it was given is in the ring until it is durable, so
// nobody else keeps bytes for it; when the ring is full it takes no more. Owner: DiskTier. Thread: the
// shard's.
class ExtentWriter {
 public:
  // ring: kWriteRingMin or more, page-aligned; outlives the writer's last request.
  ExtentWriter(DiskQueue& queue, Clock& clock, Segment ring, WriterEvents events);

  // Whether a record of that many bytes would be taken now.
  bool HasRoom(uint32_t record_bytes, uint32_t parts);
  // Copies a record: the header gets extent, page and use, `data` is each part's bytes. False: no room now.
  // `damaged` is set instead when a part's bytes do not have the CRC that the header says; nothing is
  // appended then.
  bool Append(RecordHeader& header, absl::Span<const std::byte* const> data, bool& damaged);
  // The same in steps, so that no turn of the shard lasts as long as a large record's copy. Begin takes the
  // place (false: no room now) and sets the header; it, and what `data` names, stay until Step has said
  // something else than kMore. Nothing else may be appended meanwhile.
  bool Begin(RecordHeader& header, absl::Span<const std::byte* const> data);
  enum class Copied : uint8_t {
    kMore,
    kDone,
    kDamaged,
    kLost,  // A write failed meanwhile.
  };
  // Copies up to `budget` bytes, and takes them off it.
  Copied Step(uint64_t& budget);
  bool is_copying() const { return copying_.has_value(); }
  // Of the header's parts, those whose bytes did not have their CRC: after kDamaged, until the next Begin.
  absl::Span<const uint32_t> damaged() const { return damaged_; }
  // Bytes that are not yet durable and still in memory; null when they are not here.
  const std::byte* Peek(uint32_t extent, uint32_t offset, uint32_t bytes) const;

  // Moves batches on; true if anything happened.
  bool Poll();
  Nanos NextWake() const;
  // Closes the open extent with its footer, for a stop in good order; goes on in Poll until IsIdle.
  void Seal();
  bool IsIdle() const { return batches_.empty() && !(seal_asked_ && head_.has_value()); }

  uint64_t free_bytes() const { return ring_.bytes - used_; }
  uint64_t ring_bytes() const { return ring_.bytes; }
  // What the open extent still takes, its footer off.
  uint32_t head_room() const;
  bool has_head() const { return head_.has_value(); }
  uint32_t head_extent() const { return head_.has_value() ? head_->extent : UINT32_MAX; }
  // Records appended, and those of them whose end (durable or lost) was told: equal means nothing is open.
  uint64_t appended() const { return appended_; }
  uint64_t ended() const { return ended_; }
  uint64_t copied_bytes() const { return copied_bytes_; }    // Of parts, into the ring.
  uint64_t written_bytes() const { return written_bytes_; }  // Pages sent to the disk.
  uint64_t syncs() const { return syncs_; }

 private:
  struct Batch {
    enum class State : uint8_t { kFilling, kWaiting, kWriting, kWritten };
    State state = State::kFilling;
    uint32_t extent = 0;
    uint32_t offset = 0;  // In the extent.
    uint64_t ring_at = 0;
    uint32_t bytes = 0;
    uint64_t skipped = 0;  // Of the ring before it, where it began anew.
    uint32_t records = 0;
    bool footer = false;
    bool lost = false;
    bool syncing = false;
    Nanos since = 0;
    std::vector<FooterEntry> entries{};
  };
  struct Head {
    uint32_t extent = 0;
    ExtentUse use;
    uint32_t end = 0;  // Next record's offset.
    uint32_t records = 0;
    std::vector<FooterEntry> entries{};
  };

  // A record on its way into the ring; the last batch, still filling, holds its place.
  struct Copying {
    RecordHeader* header = nullptr;
    std::vector<const std::byte*> data{};
    std::byte* to = nullptr;
    uint32_t end = 0;     // Of the record, in the extent.
    uint32_t filled = 0;  // Of its payload.
    uint32_t part = 0;    // Under way.
    uint32_t crc = 0;     // Of it, so far.
    bool lost = false;
  };
  Copied EndCopy();

  bool FitsHead(uint32_t record_bytes, uint32_t parts) const;
  bool FitsRing(uint64_t bytes) const;
  bool OpenHead();
  bool CloseHead();
  // Room in the ring for bytes that follow each other in the extent: in the filling batch, or a new one.
  std::byte* Take(uint32_t extent, uint32_t offset, uint32_t bytes, bool alone);
  void StartWrites(Nanos now);
  void StartSync(Nanos now);
  void OnWritten(uint64_t serial, int error);
  void OnSynced(uint64_t first_after, int error);
  void Fail(int error);
  void Retire();
  Batch& At(uint64_t serial) { return batches_[serial - first_serial_]; }

  DiskQueue& queue_;
  Clock& clock_;
  const Segment ring_;
  const WriterEvents events_;
  std::optional<Head> head_;
  std::optional<Copying> copying_;
  std::vector<uint32_t> damaged_;
  std::deque<Batch> batches_;  // Oldest first.
  uint64_t first_serial_ = 0;  // Of batches_.front().
  uint64_t ring_head_ = 0;     // Next free byte.
  uint64_t used_ = 0;
  uint32_t writes_open_ = 0;
  bool sync_open_ = false;
  bool seal_asked_ = false;
  uint64_t appended_ = 0;
  uint64_t ended_ = 0;
  uint64_t copied_bytes_ = 0;
  uint64_t written_bytes_ = 0;
  uint64_t syncs_ = 0;
};

}  // namespace cistern
