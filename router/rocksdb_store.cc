#include <cerrno>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include "absl/strings/str_cat.h"
#include "core/disk_room.h"
#include "router/state_store.h"

namespace cistern {
namespace {

absl::Status FromRocksdb(const rocksdb::Status& status, const std::string& dir, const char* what) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat("router state in ", dir, ": ", what, ": ", status.ToString());
  if (status.IsCorruption()) {
    return absl::DataLossError(absl::StrCat(text,
                                            "; move the folder away and start again with --cluster-id, as a "
                                            "node's cluster_id file has it (`cistern up` "
                                            "does): nodes register by themselves, epochs start anew"));
  }
  // RocksDB reports a held LOCK file as an I/O error; only its text tells.
  if (status.IsIOError() && status.ToString().find("lock") != std::string::npos) {
    return absl::FailedPreconditionError(
        absl::StrCat("router state in ", dir, " is open in another process"));
  }
  if (status.IsNoSpace())
    return absl::ResourceExhaustedError(absl::StrCat(text, "; free space on that disk and try again"));
  return absl::UnavailableError(text);
}

// Few, small, precious values: everything synced, everything checked, little memory, no idle work.
class RocksdbStateStore final : public StateStore {
 public:
  RocksdbStateStore(std::unique_ptr<rocksdb::DB> db, std::string dir)
      : db_(std::move(db)), dir_(std::move(dir)) {}
  ~RocksdbStateStore() override { db_->Close().PermitUncheckedError(); }

  absl::StatusOr<std::map<std::string, std::string>> LoadAll() override {
    std::map<std::string, std::string> values;
    rocksdb::ReadOptions options;
    options.verify_checksums = true;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(options));
    for (it->SeekToFirst(); it->Valid(); it->Next())
      values.emplace(it->key().ToString(), it->value().ToString());
    if (!it->status().ok()) return FromRocksdb(it->status(), dir_, "load");
    return values;
  }

  absl::Status Commit(const std::vector<StateChange>& changes) override {
    if (changes.size() > kStateChangesMax)
      return absl::InvalidArgumentError("more than kStateChangesMax changes");
    rocksdb::WriteBatch batch;
    for (const StateChange& change : changes) {
      const rocksdb::Status queued =
          change.value ? batch.Put(change.key, *change.value) : batch.Delete(change.key);
      if (!queued.ok()) return FromRocksdb(queued, dir_, "commit");
    }
    rocksdb::WriteOptions options;
    options.sync = true;
    const rocksdb::Status written = db_->Write(options, &batch);
    // After a full disk RocksDB refuses writes until told to go on; the router tries each change again.
    if (!written.ok()) db_->Resume().PermitUncheckedError();
    return FromRocksdb(written, dir_, "commit");
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  std::string dir_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> OpenRocksdbStateStore(const std::string& dir) {
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat("router state in ", dir, ": mkdir: ", std::strerror(errno)));
  }
  if (::access((dir + "/CURRENT").c_str(), F_OK) != 0) {
    if (const absl::Status room = CheckDiskRoom(dir, kNewStateBytes); !room.ok())
      return absl::ResourceExhaustedError(absl::StrCat("router state: ", std::string(room.message())));
  }
  rocksdb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.wal_recovery_mode =
      rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;  // A torn tail was never acknowledged.
  options.write_buffer_size = 1 << 20;
  options.max_background_jobs = 1;
  options.max_open_files = 64;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.keep_log_file_num = 2;
  options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(options, dir, &raw);
  std::unique_ptr<rocksdb::DB> db(raw);
  if (!opened.ok()) return FromRocksdb(opened, dir, "open");
  return std::make_unique<RocksdbStateStore>(std::move(db), dir);
}

}  // namespace cistern
