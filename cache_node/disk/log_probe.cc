#include "cache_node/disk/log_probe.h"

#include <poll.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/disk_log.h"
#include "cache_node/disk/file_disk.h"
#include "core/crc32c.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint64_t kSourceBytes = 64u << 20;  // Parts are taken from here in turn: more than a cache holds.

class FileLogProbe final : public LogProbe {
 public:
  FileLogProbe(std::string folder, uint32_t part_bytes)
      : folder_(std::move(folder)), part_bytes_(part_bytes) {}
  ~FileLogProbe() override {
    disk_.reset();
    log_.reset();
    manifest_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  absl::Status Prepare(uint64_t capacity_bytes) {
    std::error_code ignored;
    if (std::filesystem::exists(folder_, ignored) && !std::filesystem::is_empty(folder_, ignored)) {
      return absl::FailedPreconditionError(absl::StrCat(folder_, " is not empty"));
    }
    CISTERN_ASSIGN_OR_RETURN(disk_, FileDisk::Open(folder_ + "/nvme"));
    CISTERN_ASSIGN_OR_RETURN(OpenedManifest opened, OpenRocksdbManifest(folder_ + "/manifest"));
    manifest_ = std::make_unique<Manifest>(std::move(opened.store), ManifestValues{}, /*threaded=*/true);
    CISTERN_ASSIGN_OR_RETURN(
        log_, DiskLog::Open({.capacity_bytes = capacity_bytes, .ring_bytes = 64u << 20, .log = nullptr},
                            *disk_, *manifest_, clock_, random_));
    CISTERN_ASSIGN_OR_RETURN(DiskMemory source,
                             DiskMemory::Create(std::max<uint64_t>(kSourceBytes, part_bytes_)));
    source_ = std::make_unique<DiskMemory>(std::move(source));
    for (size_t i = 0; i + 8 <= source_->bytes(); i += 8)
      StoreLe<uint64_t>(source_->data() + i, random_.Next());
    for (uint64_t at = 0; at + part_bytes_ <= source_->bytes(); at += part_bytes_) {
      crcs_.push_back(Crc32c(source_->data() + at, part_bytes_));
    }
    memory_.emplace(log_->read_memory());
    reads_.resize(memory_->RoomFor(kPageBytes + RoundUpTo(part_bytes_, kPageBytes)));
    return absl::OkStatus();
  }

  absl::Status Write() override {
    const size_t piece = written_ % crcs_.size();
    RecordHeader header;
    header.block = Block(written_);
    header.parts.push_back({.coord = {}, .at = 0, .length = part_bytes_, .crc = crcs_[piece]});
    const std::byte* data = source_->data() + piece * part_bytes_;
    while (true) {
      switch (log_->Append(header, absl::MakeConstSpan(&data, 1))) {
        case DiskLog::Appended::kOk:
          ++written_;
          log_->Poll();
          return absl::OkStatus();
        case DiskLog::Appended::kNoRoom:
          Wait();
          break;
        default:
          return absl::UnavailableError(absl::StrCat("the disk under ", folder_, " takes no writes"));
      }
    }
  }

  absl::Status Settle() override {
    while (log_->writer().appended() != log_->writer().ended()) Wait();
    if (log_->counters().lost_parts == 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("writes to the disk under ", folder_, " fail"));
  }

  absl::Status Read(Segment target) override {
    for (OneRead& read : reads_) {
      if (!read.open) CISTERN_RETURN_IF_ERROR(Begin(read));
    }
    OneRead* done = nullptr;
    log_->Poll();
    while (true) {
      for (OneRead& read : reads_) {
        if (read.ended && done == nullptr) done = &read;
      }
      if (done != nullptr) break;
      Wait();
    }
    const absl::StatusOr<RecordHeader> header = DecodeRecordHeader(done->buffer);
    const bool right =
        done->error == 0 && header.ok() && header->block == done->block && header->parts.size() == 1 &&
        header->parts[0].length == part_bytes_ && target.bytes >= part_bytes_ &&
        CopyCrc32c(target.data, done->buffer + kPageBytes, part_bytes_) == header->parts[0].crc;
    Close(*done);
    CISTERN_RETURN_IF_ERROR(Begin(*done));
    return right ? absl::OkStatus() : absl::DataLossError("a part did not come back as it was written");
  }

  void EndReads() override {
    for (OneRead& read : reads_) {
      if (!read.open) continue;
      while (!read.ended) Wait();
      Close(read);
    }
  }

  uint32_t depth() const override { return static_cast<uint32_t>(reads_.size()); }
  std::vector<std::string> FullFiles() const override {
    std::vector<std::string> files;
    for (const auto& [file, extent] : log_->table().all()) {
      if (extent.state == ExtentState::kSealed) files.push_back(folder_ + "/nvme/" + FileDisk::NameOf(file));
    }
    return files;
  }
  std::string Describe() const override { return disk_->Describe(); }

 private:
  struct OneRead {
    std::byte* buffer = nullptr;
    uint32_t bytes = 0;
    BlockKey block;
    bool open = false;
    bool ended = false;
    int error = 0;
  };

  // As a node's shard waits: asleep, until a request ends or the log has something to do.
  void Wait() {
    if (log_->Poll()) return;
    const Nanos now = clock_.Now();
    const Nanos sleep = std::min(log_->NextWake(), now + kMillisecond) - now;
    if (sleep <= 0) return;
    pollfd ended{.fd = disk_->WaitFd(), .events = POLLIN, .revents = 0};
    const timespec timeout{.tv_sec = 0, .tv_nsec = sleep};
    ::ppoll(&ended, 1, &timeout, nullptr);
  }

  static BlockKey Block(uint64_t number) {
    BlockKey block;
    Random bytes(number);
    for (size_t i = 0; i < 32; i += 8) StoreLe<uint64_t>(block.hash.bytes.data() + i, bytes.Next());
    block.fingerprint = number;
    return block;
  }

  void Close(OneRead& read) {
    memory_->Give(read.buffer, read.bytes);
    read.open = read.ended = false;
  }

  absl::Status Begin(OneRead& read) {
    const DiskEntry* entry = nullptr;
    for (int tries = 0; entry == nullptr && tries < 1000; ++tries) {
      read.block = Block(random_.Below(std::max<uint64_t>(written_, 1)));
      entry = log_->Find(read.block.hash, {});
    }
    if (entry == nullptr) return absl::FailedPreconditionError("nothing was written to read");
    const uint32_t begin = entry->record_at();
    read.bytes = entry->end() - begin;
    read.buffer = memory_->Take(read.bytes);  // All are of one size: there is a place for each.
    read.open = true;
    log_->Read(entry->extent, begin, read.buffer, read.bytes, [&read](int error) {
      read.ended = true;
      read.error = error;
    });
    return absl::OkStatus();
  }

  const std::string folder_;
  const uint32_t part_bytes_;
  BootClock clock_;
  Random random_{std::random_device{}()};
  std::unique_ptr<FileDisk> disk_;
  std::unique_ptr<Manifest> manifest_;
  std::unique_ptr<DiskLog> log_;
  std::unique_ptr<DiskMemory> source_;
  std::vector<uint32_t> crcs_;
  std::optional<ReadMemory> memory_;
  std::vector<OneRead> reads_;
  uint64_t written_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LogProbe>> LogProbe::Open(const std::string& folder, uint32_t part_bytes,
                                                         uint64_t capacity_bytes) {
  auto probe = std::make_unique<FileLogProbe>(folder, part_bytes);
  CISTERN_RETURN_IF_ERROR(probe->Prepare(capacity_bytes));
  return std::unique_ptr<LogProbe>(std::move(probe));
}

}  // namespace cistern
