#include "cache_node/disk/manifest.h"

#include <utility>

#include "cache_node/disk/crash_point.h"

namespace cistern {
namespace {

class MemoryManifest final : public ManifestStore {
 public:
  explicit MemoryManifest(ManifestValues& values) : values_(values) {}
  absl::StatusOr<ManifestValues> LoadAll() override { return values_; }
  absl::Status Commit(const ManifestChanges& changes) override {
    for (const auto& [key, value] : changes) {
      if (value.has_value()) {
        values_[key] = *value;
      } else {
        values_.erase(key);
      }
    }
    return absl::OkStatus();
  }

 private:
  ManifestValues& values_;
};

}  // namespace

std::unique_ptr<ManifestStore> MakeMemoryManifest(ManifestValues& values) {
  return std::make_unique<MemoryManifest>(values);
}

Manifest::Manifest(std::unique_ptr<ManifestStore> store, ManifestValues values, bool threaded)
    : store_(std::move(store)), loaded_(std::move(values)) {
  if (threaded) thread_ = std::thread([this] { Run(); });
}

Manifest::~Manifest() {
  {
    const absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Manifest::Put(const std::string& key, std::string value) { Change(key, std::move(value)); }
void Manifest::Delete(const std::string& key) { Change(key, std::nullopt); }

void Manifest::Change(const std::string& key, std::optional<std::string> value) {
  const absl::MutexLock lock(&mutex_);
  waiting_[key] = std::move(value);
  ++changes_;
  CrashHere(CrashPoint::kManifestQueued);
  if (!thread_.joinable()) CommitGroup();
}

void Manifest::CommitGroup() {
  ManifestChanges group;
  while (!waiting_.empty() && group.size() < kManifestGroupMax)
    group.insert(waiting_.extract(waiting_.begin()));
  const uint64_t taken = waiting_.empty() ? changes_ : settled_;
  committing_ = true;
  mutex_.Unlock();
  const absl::Status done = store_->Commit(group);
  if (done.ok()) CrashHere(CrashPoint::kManifestCommitted);
  mutex_.Lock();
  committing_ = false;
  settled_ = taken;
  ++(done.ok() ? commits_ : failed_commits_);
  // Not tried again: the next start makes the manifest agree with the extents.
}

void Manifest::Run() {
  const absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(this, &Manifest::HasWork));
    if (waiting_.empty()) return;
    CommitGroup();
  }
}

void Manifest::Flush() {
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &Manifest::IsIdle));
}

uint64_t Manifest::changes() const {
  const absl::MutexLock lock(&mutex_);
  return changes_;
}

bool Manifest::HasSettled(uint64_t changes) const {
  const absl::MutexLock lock(&mutex_);
  return settled_ >= changes;
}

uint64_t Manifest::commits() const {
  const absl::MutexLock lock(&mutex_);
  return commits_;
}

uint64_t Manifest::failed_commits() const {
  const absl::MutexLock lock(&mutex_);
  return failed_commits_;
}

}  // namespace cistern
