#include "client/cli/cluster_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_join.h"
#include "client/cli/options.h"
// lint: allow(room) because the CLI links what it shows: the node's own code for the node's own files.
#include "cache_node/disk/id_file.h"
#include "client/cli/output.h"
#include "core/ids.h"
#include "core/status_macros.h"
#include "core/ticket.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

namespace fs = std::filesystem;

// A reader sees the old file or the new one, also after a crash of ours.
absl::Status WriteWhole(const std::string& path, const std::string& text) {
  const std::string next = path + ".new";
  {
    std::ofstream file(next, std::ios::trunc);
    file << text;
    file.flush();
    if (!file)
      return absl::UnavailableError("cannot write " + next + ": " + strerror(errno) +
                                    "; free space or use another --dir");
  }
  fs::permissions(next, fs::perms::owner_read | fs::perms::owner_write);
  if (rename(next.c_str(), path.c_str()) != 0)
    return absl::UnavailableError("cannot write " + path + ": " + strerror(errno));
  return absl::OkStatus();
}

absl::Status CannotRead(const std::string& path, const std::string& why) {
  return absl::UnavailableError("cannot read " + path + ": " + why +
                                "; be the user whose cluster it is, or give another --dir");
}

std::optional<Json> ReadJson(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  Json out = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  return out;  // Discarded (is_discarded()) when it is no JSON.
}

// Nothing when it is no whole number of 0 to `max`: as the flags have it.
std::optional<uint32_t> NumberUpTo(const Json& object, const char* name, uint32_t fallback, uint32_t max) {
  const auto at = object.find(name);
  if (at == object.end()) return fallback;
  if (!at->is_number_unsigned() || at->get<uint64_t>() > max) return std::nullopt;
  return at->get<uint32_t>();
}

template <typename T>
T Field(const Json& object, const char* name, T fallback) {
  const auto at = object.find(name);
  return at == object.end() ? fallback : at->get<T>();
}

}  // namespace

bool ClusterFolder::Exists(const std::string& dir) {
  std::error_code ignored;
  return fs::exists(dir + "/cluster.json", ignored);
}

absl::StatusOr<ClusterFolder> ClusterFolder::Lock(const std::string& dir) {
  std::error_code error;
  const std::string whole = fs::absolute(dir, error).lexically_normal().string();
  const std::string path = whole + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    return absl::UnavailableError("cannot use folder " + whole + ": " + strerror(errno) +
                                  "; give another --dir");
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return absl::UnavailableError("another 'cistern up' or 'down' is at work in " + whole +
                                  "; try again when it is done");
  }
  return ClusterFolder(whole, fd);
}

absl::StatusOr<ClusterFolder> ClusterFolder::Create(const std::string& dir) {
  std::error_code error;
  for (const char* sub : {"", "/logs", "/run", "/router"}) {
    fs::create_directories(dir + sub, error);
    if (error)
      return absl::UnavailableError("cannot make folder " + dir + sub + ": " + error.message() +
                                    "; give another --dir");
  }
  fs::permissions(dir, fs::perms::owner_all, error);
  return Lock(dir);
}

absl::StatusOr<ClusterFolder> ClusterFolder::Open(const std::string& dir) {
  std::error_code error;
  const bool there = fs::exists(dir + "/cluster.json", error);
  if (error) return CannotRead(dir + "/cluster.json", error.message());
  if (!there)
    return absl::NotFoundError("there is no cluster in " + dir +
                               "; start one with 'cistern up' or give its --dir");
  return Lock(dir);
}

ClusterFolder::ClusterFolder(ClusterFolder&& other) noexcept
    : dir_(std::move(other.dir_)), lock_(std::exchange(other.lock_, -1)) {}

void ClusterFolder::Unlock() {
  if (lock_ >= 0) close(std::exchange(lock_, -1));
}

absl::StatusOr<std::optional<ClusterSettings>> ClusterFolder::Load() const {
  const std::string path = dir_ + "/cluster.json";
  // What is there and cannot be read must not be taken for a new cluster: its flags would be written over.
  if (access(path.c_str(), R_OK) != 0 && errno != ENOENT) return CannotRead(path, strerror(errno));
  const std::optional<Json> json = ReadJson(path);
  if (!json) return std::optional<ClusterSettings>();
  const absl::Status damaged = absl::DataLossError(
      path + " is damaged or out of range; mend it, or remove it and give the flags again");
  if (!json->is_object()) return damaged;
  try {
    ClusterSettings out;
    out.router = Field<std::string>(*json, "router", "");
    const std::optional<uint32_t> nodes = NumberUpTo(*json, "nodes", kClusterNodesDefault, kClusterNodesMax);
    const std::optional<uint32_t> shards = NumberUpTo(*json, "shards", 0, kClusterShardsMax);
    if (!nodes || !shards) return damaged;
    out.nodes = *nodes;
    out.shards = *shards;
    out.ram_bytes = Field<uint64_t>(*json, "ram_bytes", 0);
    out.nvme_bytes = Field<uint64_t>(*json, "nvme_bytes", 0);
    out.hbm_bytes = Field<uint64_t>(*json, "hbm_bytes", 0);
    out.hbm_device = Field<std::string>(*json, "hbm_device", "");
    out.nvme_mode = Field<std::string>(*json, "nvme_mode", "");
    out.transport = Field<std::string>(*json, "transport", "");
    out.fabric = Field<std::string>(*json, "fabric", "");
    out.fabric_transports = Field<std::string>(*json, "fabric_transports", "");
    out.fabric_devices = Field<std::string>(*json, "fabric_devices", "");
    out.require_rdma = Field<bool>(*json, "require_rdma", false);
    out.policy = Field<std::string>(*json, "policy", "");
    out.addresses = Field<std::map<std::string, std::string>>(*json, "addresses", {});
    if (out.router.empty() || out.nodes == 0) return damaged;
    return std::optional<ClusterSettings>(std::move(out));
  } catch (const Json::exception&) {
    return damaged;
  }
}

absl::Status ClusterFolder::Save(const ClusterSettings& settings) const {
  Json json;
  json["router"] = settings.router;
  json["nodes"] = settings.nodes;
  json["shards"] = settings.shards;
  json["ram_bytes"] = settings.ram_bytes;
  json["nvme_bytes"] = settings.nvme_bytes;
  json["hbm_bytes"] = settings.hbm_bytes;
  json["hbm_device"] = settings.hbm_device;
  json["nvme_mode"] = settings.nvme_mode;
  json["transport"] = settings.transport;
  json["fabric"] = settings.fabric;
  json["fabric_transports"] = settings.fabric_transports;
  json["fabric_devices"] = settings.fabric_devices;
  json["require_rdma"] = settings.require_rdma;
  json["policy"] = settings.policy;
  json["addresses"] = settings.addresses;
  return WriteWhole(dir_ + "/cluster.json", json.dump(2) + "\n");
}

void ClusterFolder::ForgetSettings() const {
  std::error_code ignored;
  fs::remove(dir_ + "/cluster.json", ignored);
}

absl::StatusOr<std::string> ClusterFolder::KeyFile() const {
  const std::string path = dir_ + "/cluster.key";
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path;
  if (const std::string kept = KeptUnderKey(); !kept.empty()) {
    return absl::FailedPreconditionError(
        path + " is missing, and with another key nothing in " + kept +
        " could be found again; bring the key back, or remove those to begin with an "
        "empty cache");
  }
  CISTERN_RETURN_IF_ERROR(ClusterKey::Generate().Save(path));
  return path;
}

std::string ClusterFolder::KeptUnderKey() const {
  std::error_code ignored;
  std::vector<std::string> kept;
  if (!fs::is_empty(RouterState(), ignored) && !ignored) kept.push_back(RouterState());
  for (const auto& entry : fs::directory_iterator(dir_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("node-") && fs::exists(NodeData(name), ignored))
      kept.push_back(entry.path().string());
  }
  std::sort(kept.begin(), kept.end());
  return absl::StrJoin(kept, ", ");
}

std::optional<ProcessId> ClusterFolder::Recorded(const std::string& name) const {
  const std::optional<Json> json = ReadJson(dir_ + "/run/" + name);
  if (!json || !json->is_object()) return std::nullopt;
  try {
    return ProcessId{Field<pid_t>(*json, "pid", 0), Field<uint64_t>(*json, "start_ticks", 0)};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

absl::Status ClusterFolder::Record(const std::string& name, const ProcessId& process) const {
  return WriteWhole(dir_ + "/run/" + name,
                    Json{{"pid", process.pid}, {"start_ticks", process.start_ticks}}.dump() + "\n");
}

void ClusterFolder::Forget(const std::string& name) const {
  std::error_code ignored;
  fs::remove(dir_ + "/run/" + name, ignored);
}

bool ClusterFolder::HasRouterState() const {
  std::error_code ignored;
  return fs::exists(RouterState() + "/state/CURRENT", ignored);  // Of RocksDB; the last file that it makes.
}

std::string ClusterFolder::ClusterOfNodes() const {
  std::error_code ignored;
  for (const auto& node : fs::directory_iterator(dir_, ignored)) {
    const auto id = ReadClusterId((node.path() / "data").string());
    if (id.ok() && id->has_value()) return ToHex(**id);
  }
  return {};
}

std::vector<std::string> ClusterFolder::RecordedNames() const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir_ + "/run", ignored)) {
    if (entry.path().extension() != ".new") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace cistern
