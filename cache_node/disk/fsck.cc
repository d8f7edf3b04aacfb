#include "cache_node/disk/fsck.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cache_node/disk/extent_row.h"
#include "cache_node/disk/extent_scan.h"
#include "cache_node/disk/extent_table.h"
#include "cache_node/disk/file_disk.h"
#include "cache_node/disk/id_file.h"
#include "cache_node/disk/manifest.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

struct KeyHash {
  size_t operator()(const PartKey& key) const { return key.block.hash.Prefix64() ^ key.coord.Packed(); }
};

// One run over one folder.
class Checker {
 public:
  Checker(const std::string& dir, bool online) : dir_(dir), online_(online) {
    report_.dir = dir;
    report_.online = online;
  }

  absl::StatusOr<FsckReport> Run() {
    CheckIds();
    const std::string log = dir_ + "/nvme";
    std::error_code ignored;
    if (!std::filesystem::exists(log, ignored)) return report_;
    CISTERN_ASSIGN_OR_RETURN(disk_, FileDisk::Open(log, {.uring = false, .direct = false}));
    CISTERN_ASSIGN_OR_RETURN(const std::vector<FileId> files, disk_->List());
    FindStrays(log);
    if (!online_) ReadManifest(files);
    for (const FileId file : files) {
      if (file >= kExtentsMax) continue;
      online_ ? CheckLiveExtent(file) : CheckExtent(file);
    }
    Count();
    return report_;
  }

 private:
  void CheckIds() {
    const absl::Status node = ReadNodeId(dir_).status(), cluster = ReadClusterId(dir_).status();
    if (!node.ok()) Problem("node_id", std::string(node.message()));
    if (!cluster.ok()) Problem("cluster_id", std::string(cluster.message()));
  }
  void Problem(const char* kind, std::string where) {
    ++report_.problem_count;
    if (report_.problems.size() < kFsckProblemsMax) report_.problems.push_back({kind, std::move(where)});
  }
  static std::string NameOf(FileId file) {
    return absl::StrCat("nvme/extent-", absl::Hex(file, absl::kZeroPad8));
  }

  void FindStrays(const std::string& log) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(log, ignored)) {
      const std::string name = entry.path().filename().string();
      const std::string number = absl::StartsWith(name, "extent-") ? name.substr(7) : "";
      const bool ours = number.size() == 8 &&
                        number.find_first_not_of("0123456789abcdef") == std::string::npos &&
                        std::strtoul(number.c_str(), nullptr, 16) < kExtentsMax && !entry.is_symlink(ignored);
      if (!ours) Problem("stray_file", absl::StrCat("nvme/", name));
    }
  }

  absl::StatusOr<ExtentScan> EndsOf(FileId file) {
    CISTERN_ASSIGN_OR_RETURN(
        ExtentScan scan,
        ExtentScan::Create(file, [this, file](uint32_t offset, std::byte* data, uint32_t bytes) {
          return disk_->ReadNow(file, offset, data, bytes);
        }));
    CISTERN_RETURN_IF_ERROR(scan.ReadEnds());
    return scan;
  }

  // Beside a running node: one extent that it has sealed. Where reclaim took it meanwhile, nothing was seen.
  void CheckLiveExtent(FileId file) {
    const absl::StatusOr<ExtentScan> before = EndsOf(file);
    if (!before.ok() || before->free() || !before->sealed()) {
      report_.open_extents += !before.ok() || !before->free();
      return;
    }
    const FsckReport seen = report_;
    CheckExtent(file);
    const absl::StatusOr<ExtentScan> after = EndsOf(file);
    if (after.ok() && !after->free() && after->sealed() && after->use() == before->use()) return;
    report_ = seen;
    ++report_.open_extents;
  }

  void CheckExtent(FileId file) {
    const absl::Status checked = [&]() -> absl::Status {
      CISTERN_ASSIGN_OR_RETURN(ExtentScan scan, EndsOf(file));
      CISTERN_ASSIGN_OR_RETURN(const bool begun, LookBehindHeader(file, FoundIn(scan)));
      if (begun) return absl::OkStatus();
      if (!IsWhatItsRowSays(file, FoundIn(scan)) || scan.free()) return absl::OkStatus();
      for (bool all = !scan.sealed(); !all;) {
        CISTERN_ASSIGN_OR_RETURN(all, scan.StepEntries());
      }
      if (scan.sealed()) {
        CISTERN_RETURN_IF_ERROR(CheckSealed(file, scan));
      } else if (scan.known()) {
        for (bool done = false; !done;) {
          CISTERN_ASSIGN_OR_RETURN(done, scan.Step());
        }
      } else {
        // A file that was made and never written is all zeros.
        if (!scan.blank()) {
          Problem("extent_header",
                  absl::StrCat(NameOf(file), " at 0: neither header nor footer can be read"));
        }
        return absl::OkStatus();
      }
      TakeFindings(file, scan);
      if (const auto row = rows_.find(file); row != rows_.end() && !scan.sealed() &&
                                             row->second.state == ExtentState::kSealed &&
                                             row->second.life == scan.use().life) {
        SayRow(file, row->second, "it has no footer");
      }
      Take(file, scan);
      return absl::OkStatus();
    }();
    if (checked.ok()) return;
    Problem(absl::IsOutOfRange(checked) ? "short_extent" : "unreadable",
            absl::StrCat(NameOf(file), ": ", std::string(checked.message())));
  }

  void TakeFindings(FileId file, const ExtentScan& scan) {
    for (const ScanFinding& finding : scan.findings()) {
      Problem(finding.kind.c_str(), absl::StrCat(NameOf(file), " at ", finding.offset, ": ", finding.what));
    }
    ++report_.extents;
  }

  // Whether there are records of the use that its row says was begun, as a start looks for them.
  absl::StatusOr<bool> LookBehindHeader(FileId file, const FoundExtent& found) {
    const std::optional<ExtentUse> begun = UseToLookFor(RowOf(file), found);
    if (!begun.has_value()) return false;
    CISTERN_ASSIGN_OR_RETURN(ExtentScan scan, EndsOf(file));
    scan.LookFor(*begun);
    for (bool done = false; !done;) {
      CISTERN_ASSIGN_OR_RETURN(done, scan.Step());
    }
    if (scan.records() == 0) return false;
    TakeFindings(file, scan);
    Take(file, scan);
    return true;
  }

  // Every record the footer names, byte by byte.
  absl::Status CheckSealed(FileId file, ExtentScan& scan) {
    const std::vector<FooterEntry> entries = scan.entries();
    uint32_t end = kPageBytes;
    for (size_t i = 0; i < entries.size();) {
      size_t next = i + 1;
      while (next < entries.size() && entries[next].page == entries[i].page) ++next;
      const uint32_t at = entries[i].page * kPageBytes;
      const std::byte* payload = nullptr;
      CISTERN_ASSIGN_OR_RETURN(const std::optional<RecordHeader> record,
                               scan.ReadRecord(entries[i].page, &payload));
      const auto where = [&](const char* what) { return absl::StrCat(NameOf(file), " at ", at, ": ", what); };
      if (!record.has_value()) {
        Problem("record", where("no record where the footer names one"));
      } else {
        std::vector<FooterEntry> said;
        AppendEntries(*record, said);
        if (!std::equal(said.begin(), said.end(), entries.begin() + static_cast<long>(i),
                        entries.begin() + static_cast<long>(next))) {
          Problem("footer", where("footer and record disagree"));
        }
        if (!PayloadIsWhole(*record, payload)) Problem("payload", where("checksum"));
        if (at < end) Problem("overlap", where("begins inside the record before it"));
        end = at + record->RecordBytes();
      }
      i = next;
    }
    return absl::OkStatus();
  }

  void Take(FileId, const ExtentScan& scan) {
    const uint64_t life = scan.use().life;
    for (const FooterEntry& entry : scan.entries()) {
      const uint64_t generation = GenerationOf(life, entry.page);
      if (entry.kind == RecordKind::kDropAll)
        dropped_all_ = std::max(dropped_all_, DroppedBefore(entry.block.fingerprint, generation));
      if (entry.kind != RecordKind::kBlock)
        continue;  // Single drops only lower the count; they are no problem.
      Newest& newest = newest_[{.block = entry.block, .coord = entry.coord}];
      if (generation >= newest.generation) newest = {.generation = generation, .tail = entry.tail};
    }
  }

  void Count() {
    absl::flat_hash_map<BlockHash, TailMark, BlockHashHasher> missing;  // Parts that each tail lacks.
    for (const auto& [key, newest] : newest_) {
      if (newest.generation < dropped_all_) continue;
      ++report_.parts;
      if (newest.tail.parts != 0) --missing.try_emplace(key.block.hash, newest.tail).first->second.parts;
    }
    for (const auto& [block, tail] : missing) ++(tail.parts == 0 ? report_.tails : report_.part_tails);
  }

  // What an extent holds is judged by the rules of a node's start (extent_row.h).
  void ReadManifest(const std::vector<FileId>& files) {
    const absl::StatusOr<ManifestValues> values = ReadRocksdbManifest(dir_ + "/manifest");
    if (!values.ok()) return Problem("manifest", std::string(values.status().message()));
    for (const auto& [key, value] : *values) {
      const std::optional<FileId> file = ExtentOfRowKey(key);
      if (!file.has_value()) continue;
      const std::optional<ExtentRow> row = DecodeExtentRow(value);
      if (!row.has_value()) {
        Problem("manifest_extent",
                absl::StrCat("manifest says \"", value, "\" of ", NameOf(*file), ": it is no row"));
        continue;
      }
      rows_[*file] = *row;
      if (!std::binary_search(files.begin(), files.end(), *file)) (void)IsWhatItsRowSays(*file, {});
    }
  }

  std::optional<ExtentRow> RowOf(FileId file) const {
    const auto row = rows_.find(file);
    return row == rows_.end() ? std::nullopt : std::optional<ExtentRow>(row->second);
  }
  void SayRow(FileId file, const ExtentRow& row, std::string_view why) {
    Problem("manifest_extent", absl::StrCat("manifest says \"", EncodeExtentRow(row), "\" of ", NameOf(file),
                                            ": ", std::string(why)));
  }

  bool IsWhatItsRowSays(FileId file, const FoundExtent& found) {
    const std::optional<ExtentRow> row = RowOf(file);
    if (IsStale(row, found)) {
      Problem("extent_header",
              absl::StrCat(NameOf(file), " at 0: torn as its use began; a start makes it free"));
      return false;
    }
    const std::string_view why = WhyLost(row, found);
    if (!why.empty()) SayRow(file, *row, why);
    return why.empty();
  }

  const std::string dir_;
  const bool online_;
  FsckReport report_;
  std::unique_ptr<FileDisk> disk_;
  std::map<FileId, ExtentRow> rows_;
  struct Newest {
    uint64_t generation = 0;
    TailMark tail;
  };
  absl::flat_hash_map<PartKey, Newest, KeyHash> newest_;
  uint64_t dropped_all_ = 0;
};

}  // namespace

absl::StatusOr<FsckReport> CheckDataFolder(const std::string& dir) {
  std::error_code ignored;
  const std::filesystem::file_status there = std::filesystem::status(dir, ignored);
  if (there.type() == std::filesystem::file_type::none) {
    return absl::UnavailableError(
        absl::StrCat(dir, ": ", ignored.message(), "; be the user that the node runs as"));
  }
  if (there.type() != std::filesystem::file_type::directory)
    return absl::NotFoundError(absl::StrCat(dir, ": no such folder"));
  const auto has = [&](const char* name) { return std::filesystem::exists(dir + name, ignored); };
  if (!has("/node_id") && !has("/cluster_id") && !has("/nvme")) {
    return absl::NotFoundError(absl::StrCat(
        dir,
        " is no node's data folder: it has neither node_id nor nvme; give a node's --data-dir (of a local "
        "cluster: node-1/data in its --dir)"));
  }
  const int lock = ::open((dir + "/lock").c_str(), O_RDWR | O_CLOEXEC);
  const bool online = lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  absl::StatusOr<FsckReport> report = Checker(dir, online).Run();
  // Further shards have folders of their own inside.
  for (int shard = 1; report.ok(); ++shard) {
    const std::string name = absl::StrCat("shard-", shard);
    if (!std::filesystem::is_directory(absl::StrCat(dir, "/", name), ignored)) break;
    absl::StatusOr<FsckReport> more = Checker(absl::StrCat(dir, "/", name), online).Run();
    if (!more.ok()) {
      report = std::move(more);
      break;
    }
    report->parts += more->parts;
    report->extents += more->extents;
    report->open_extents += more->open_extents;
    report->problem_count += more->problem_count;
    for (FsckProblem& problem : more->problems)
      report->problems.push_back({std::move(problem.kind), absl::StrCat(name, "/", problem.where)});
  }
  if (lock >= 0) ::close(lock);
  return report;
}

}  // namespace cistern
