#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace cistern {

// Keys of the manifest: what extents cannot say (docs/disk_format.md). Values are text, for people with
// `ldb`.
//   settings          "format=1 shards=1"
//   extent/0000002a   "sealed life=17 nonce=9f2c41d07b63e8a5 data_end=66977792 records=3271" (ExtentRow)
//   ttl/<block>       "expires=1800000300 ttl=300 sliding=1" (RetentionBook)
//   quota/<tenant>    "quota=67108864 floor=0 reject=0 ttl=0 sliding=0 pin=0"
using ManifestValues = std::map<std::string, std::string>;
using ManifestChanges = std::map<std::string, std::optional<std::string>>;  // Without value: the key goes.

inline constexpr size_t kManifestGroupMax = 4096;  // Changes of one group.

// Where the manifest is kept. One thread at a time.
class ManifestStore {
 public:
  virtual ~ManifestStore() = default;
  virtual absl::StatusOr<ManifestValues> LoadAll() = 0;
  // All or none, and outliving a power cut when it returns OK.
  virtual absl::Status Commit(const ManifestChanges& changes) = 0;
};

// In a RocksDB in `dir`. One that does not open or read is moved to `dir`.damaged and begun anew: the extents
// are the truth, and what only it held is lost; `rebuilt` says so.
struct OpenedManifest {
  std::unique_ptr<ManifestStore> store;
  bool rebuilt = false;
  std::string why;  // Of the rebuilding.
};
absl::StatusOr<OpenedManifest> OpenRocksdbManifest(const std::string& dir);
// Reads one without changing it; NotFound when there is none, DataLoss when it is damaged.
absl::StatusOr<ManifestValues> ReadRocksdbManifest(const std::string& dir);
// For tests and the simulator; `values` outlives it.
std::unique_ptr<ManifestStore> MakeMemoryManifest(ManifestValues& values);

// Collects changes and commits them in groups on a thread of its own, so that no shard waits for a synced
// write. Later changes of a key replace those that still wait, so what waits is bounded by the keys there
// are. Owner: the node. Thread: any. The destructor commits what is left.
class Manifest {
 public:
  // threaded: false commits on the caller's thread, for deterministic runs.
  Manifest(std::unique_ptr<ManifestStore> store, ManifestValues values, bool threaded);
  ~Manifest();
  Manifest(const Manifest&) = delete;
  Manifest& operator=(const Manifest&) = delete;

  // As they were when it was opened.
  const ManifestValues& loaded() const { return loaded_; }
  void Put(const std::string& key, std::string value);
  void Delete(const std::string& key);
  // Waits until everything so far was committed or has failed.
  void Flush();
  // How many changes there were; whether the first so many were committed or have failed.
  uint64_t changes() const;
  bool HasSettled(uint64_t changes) const;
  uint64_t commits() const;
  uint64_t failed_commits() const;

 private:
  void Change(const std::string& key, std::optional<std::string> value);
  void CommitGroup() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || !waiting_.empty(); }
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waiting_.empty() && !committing_; }

  const std::unique_ptr<ManifestStore> store_;  // The committing thread's, or the caller's.
  const ManifestValues loaded_;
  mutable absl::Mutex mutex_;
  ManifestChanges waiting_ ABSL_GUARDED_BY(mutex_);
  bool committing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t settled_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t commits_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t failed_commits_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace cistern
