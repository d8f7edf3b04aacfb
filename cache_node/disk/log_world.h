#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache_node/disk/disk_log.h"
#include "cache_node/disk/memory_disk.h"
#include "core/check.h"
#include "core/crc32c.h"

namespace cistern {

// A log on a disk in memory, that can be killed and opened again. For tests.
class LogWorld {
 public:
  explicit LogWorld(uint64_t seed, uint32_t extents = 4)
      : random(seed), files(std::make_shared<MemoryFiles>()), extents_(extents) {}
  ~LogWorld() { Close(); }

  absl::Status TryOpen() {
    Close();
    disk = std::make_unique<MemoryDisk>(files, random);
    disk->faults = faults;
    manifest = std::make_unique<Manifest>(MakeMemoryManifest(values), values, /*threaded=*/false);
    DiskLogOptions options;
    options.capacity_bytes = uint64_t{extents_} * kExtentBytes;
    options.ring_bytes = ring_bytes;
    options.log = [this](bool warn, const std::string& line) {
      if (warn) warnings.push_back(line);
    };
    absl::StatusOr<std::unique_ptr<DiskLog>> opened = DiskLog::Open(options, *disk, *manifest, clock, random);
    if (!opened.ok()) return opened.status();
    log = *std::move(opened);
    return absl::OkStatus();
  }
  void Open() { CISTERN_CHECK(TryOpen().ok()); }
  // As kill -9 does: requests under way happened, or not, or in part.
  void Close() {
    disk.reset();
    log.reset();
    manifest.reset();
  }
  void PowerCut() {
    Close();
    files->PowerCut(random);
  }

  BlockKey Block(uint64_t number) const {
    BlockKey block;
    Random bytes(number * 977 + 5);
    for (size_t i = 0; i < 32; i += 8) StoreLe<uint64_t>(block.hash.bytes.data() + i, bytes.Next());
    block.fingerprint = bytes.Next();
    return block;
  }
  static std::vector<std::byte> Bytes(uint64_t number, uint32_t length) {
    std::vector<std::byte> out(RoundUpTo(length, 8));
    Random pattern(number + 1);
    for (size_t i = 0; i < out.size(); i += 8) StoreLe<uint64_t>(out.data() + i, pattern.Next());
    out.resize(length);
    return out;
  }
  // A record that may be appended again and again.
  struct Made {
    RecordHeader header;
    std::vector<std::vector<std::byte>> bytes;
    std::vector<const std::byte*> data;
  };
  Made Make(uint64_t number, uint32_t length, uint32_t parts = 1) const {
    Made made;
    made.header.block = Block(number);
    made.header.layout.bytes.fill(7);
    for (uint32_t i = 0; i < parts; ++i) {
      made.bytes.push_back(Bytes(number * 131 + i, length));
      const uint32_t at = RoundUpTo(made.header.PayloadBytes(), kPartAlign);
      made.header.parts.push_back({.coord = PartCoord::Unpack(i),
                                   .at = at,
                                   .length = length,
                                   .crc = Crc32c(made.bytes.back().data(), length)});
    }
    for (const auto& one : made.bytes) made.data.push_back(one.data());
    return made;
  }
  DiskLog::Appended Append(uint64_t number, uint32_t length) {
    Made made = Make(number, length);
    return log->Append(made.header, made.data);
  }
  // Until it is taken; the log is polled meanwhile.
  void Put(uint64_t number, uint32_t length, uint32_t parts = 1) {
    Made made = Make(number, length, parts);
    for (int i = 0; i < 100'000; ++i) {
      const DiskLog::Appended appended = log->Append(made.header, made.data);
      if (appended == DiskLog::Appended::kOk) return;
      CISTERN_CHECK(appended == DiskLog::Appended::kNoRoom);
      Turn();
    }
    CISTERN_CHECK(false);
  }
  // Blocks with all their parts; how many those were.
  uint64_t Drop(absl::Span<const BlockHash> blocks) {
    uint64_t dropped = 0;
    for (const BlockHash& hash : blocks) {
      for (uint64_t coord = 0; (coord = log->coords_seen().Next(coord)) != CoordsSeen::kNone; ++coord)
        dropped += log->DropPart(hash, PartCoord::Unpack(static_cast<uint32_t>(coord)));
      log->EndDrop(hash);
    }
    return dropped;
  }
  void Turn() {
    log->Poll();
    clock.Advance(kMillisecond / 2);
  }
  // Until everything appended is durable or lost and the start's scan is over.
  void Settle() {
    for (int i = 0; i < 100'000; ++i) {
      Turn();
      if (!log->recovering() && log->writer().appended() == log->writer().ended()) return;
    }
    CISTERN_CHECK(false);
  }
  // All of it durable, a start, and that one through.
  void Reopen() {
    Settle();
    Open();
    Settle();
  }
  void Turns(int count) {
    for (int i = 0; i < count; ++i) Turn();
  }

  enum class Found { kMiss, kRight, kRefused };
  // What a reader makes of a part: the record has to say what the index said, and the bytes what the record
  // says.
  Found Get(uint64_t number, uint32_t length, uint32_t part = 0) {
    const DiskEntry* found = log->Find(Block(number).hash, PartCoord::Unpack(part));
    if (found == nullptr) return Found::kMiss;
    const DiskEntry entry = *found;
    const uint32_t begin = entry.record_at();
    const uint32_t bytes = entry.end() - begin;
    const std::byte* at = log->Peek(entry.extent, begin, bytes);
    if (at == nullptr) {
      int error = -1;
      log->Read(entry.extent, begin, log->read_memory().data, bytes, [&](int e) { error = e; });
      for (int i = 0; i < 1000 && error < 0; ++i) Turn();
      if (error != 0) return Found::kRefused;
      at = log->read_memory().data;
    }
    const absl::StatusOr<RecordHeader> header = DecodeRecordHeader(at);
    if (!header.ok() || header->block != Block(number) || header->use != log->UseOf(entry.extent))
      return Found::kRefused;
    for (const RecordHeader::Part& one : header->parts) {
      if (one.coord.Packed() != part) continue;
      const std::byte* data = at + kPageBytes + one.at;
      if (one.length != length || Crc32c(data, length) != one.crc) return Found::kRefused;
      CISTERN_CHECK(Bytes(number * 131 + part, length) == std::vector<std::byte>(data, data + length));
      return Found::kRight;
    }
    return Found::kRefused;
  }

  Random random;
  SimClock clock;
  std::shared_ptr<MemoryFiles> files;
  ManifestValues values;
  MemoryDisk::Faults faults;
  uint64_t ring_bytes = kWriteRingMin;
  std::vector<std::string> warnings;
  std::unique_ptr<MemoryDisk> disk;
  std::unique_ptr<Manifest> manifest;
  std::unique_ptr<DiskLog> log;

 private:
  const uint32_t extents_;
};

}  // namespace cistern
