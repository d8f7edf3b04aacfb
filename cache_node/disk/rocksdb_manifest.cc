#include <filesystem>
#include <utility>

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/manifest.h"
#include "core/disk_room.h"

namespace cistern {
namespace {

absl::Status FromRocksdb(const rocksdb::Status& status, const std::string& dir, const char* what) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat("manifest in ", dir, ": ", what, ": ", status.ToString());
  if (status.IsNoSpace())
    return absl::ResourceExhaustedError(absl::StrCat(text, "; free space on that disk and try again"));
  return absl::DataLossError(text);
}

rocksdb::Options ManifestOptions() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  // A torn tail was never acknowledged; anything else means damage.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.write_buffer_size = 4 << 20;
  options.max_background_jobs = 1;
  options.max_open_files = 64;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.keep_log_file_num = 2;
  options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  return options;
}

absl::StatusOr<ManifestValues> ReadAll(rocksdb::DB& db, const std::string& dir) {
  rocksdb::ReadOptions options;
  options.verify_checksums = true;
  ManifestValues values;
  const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator(options));
  for (it->SeekToFirst(); it->Valid(); it->Next())
    values.emplace(it->key().ToString(), it->value().ToString());
  if (!it->status().ok()) return FromRocksdb(it->status(), dir, "read");
  return values;
}

class RocksdbManifest final : public ManifestStore {
 public:
  RocksdbManifest(std::unique_ptr<rocksdb::DB> db, std::string dir)
      : db_(std::move(db)), dir_(std::move(dir)) {}
  ~RocksdbManifest() override { db_->Close().PermitUncheckedError(); }

  absl::StatusOr<ManifestValues> LoadAll() override { return ReadAll(*db_, dir_); }

  absl::Status Commit(const ManifestChanges& changes) override {
    rocksdb::WriteBatch batch;
    for (const auto& [key, value] : changes) {
      const rocksdb::Status queued = value ? batch.Put(key, *value) : batch.Delete(key);
      if (!queued.ok()) return FromRocksdb(queued, dir_, "commit");
    }
    rocksdb::WriteOptions options;
    options.sync = true;
    const rocksdb::Status written = db_->Write(options, &batch);
    if (!written.ok()) db_->Resume().PermitUncheckedError();  // After a full disk it waits to be told.
    return FromRocksdb(written, dir_, "commit");
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  std::string dir_;
};

absl::StatusOr<std::unique_ptr<ManifestStore>> TryOpen(const std::string& dir) {
  std::error_code ignored;
  if (!std::filesystem::exists(dir + "/CURRENT", ignored)) {
    if (const absl::Status room = CheckDiskRoom(dir, kNewStateBytes); !room.ok())
      return absl::ResourceExhaustedError(absl::StrCat("manifest: ", std::string(room.message())));
  }
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(ManifestOptions(), dir, &raw);
  std::unique_ptr<rocksdb::DB> db(raw);
  if (!opened.ok()) return FromRocksdb(opened, dir, "open");
  auto store = std::make_unique<RocksdbManifest>(std::move(db), dir);
  if (const auto values = store->LoadAll(); !values.ok()) return values.status();
  return std::unique_ptr<ManifestStore>(std::move(store));
}

}  // namespace

absl::StatusOr<OpenedManifest> OpenRocksdbManifest(const std::string& dir) {
  OpenedManifest out;
  absl::StatusOr<std::unique_ptr<ManifestStore>> opened = TryOpen(dir);
  if (!opened.ok() && absl::IsDataLoss(opened.status())) {
    out.rebuilt = true;
    out.why = std::string(opened.status().message());
    std::error_code ignored;
    std::filesystem::remove_all(dir + ".damaged", ignored);  // One is kept, for whoever wants to look.
    std::filesystem::rename(dir, dir + ".damaged", ignored);
    opened = TryOpen(dir);
  }
  if (!opened.ok()) return opened.status();
  out.store = *std::move(opened);
  return out;
}

absl::StatusOr<ManifestValues> ReadRocksdbManifest(const std::string& dir) {
  std::error_code ignored;
  if (!std::filesystem::exists(dir + "/CURRENT", ignored)) return absl::NotFoundError(dir + ": no manifest");
  rocksdb::DB* raw = nullptr;
  rocksdb::Options options = ManifestOptions();
  options.create_if_missing = false;
  const rocksdb::Status opened = rocksdb::DB::OpenForReadOnly(options, dir, &raw);
  const std::unique_ptr<rocksdb::DB> db(raw);
  if (!opened.ok()) return FromRocksdb(opened, dir, "open");
  return ReadAll(*db, dir);
}

}  // namespace cistern
