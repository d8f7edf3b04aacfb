#include "client/cli/fio_limit.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): glibc declares it with _GNU_SOURCE only.

namespace cistern {
namespace {

constexpr uint64_t kFileBytes = uint64_t{1} << 30;
constexpr size_t kOutputBytesMax = 1u << 20;

// Standard output of a command, or nothing when it cannot be started or fails.
absl::StatusOr<std::string> OutputOf(std::vector<std::string> words) {
  int ends[2];
  if (pipe(ends) != 0) return absl::UnavailableError("no pipe for fio");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string out;
  char piece[4096];
  for (ssize_t got = 0; error == 0 && (got = read(ends[0], piece, sizeof(piece))) > 0;) {
    if (out.size() < kOutputBytesMax) out.append(piece, static_cast<size_t>(got));
  }
  close(ends[0]);
  if (error != 0) {
    return absl::NotFoundError(
        "--limit needs fio, which is not installed; run deploy/install_deps.sh, or leave --limit out");
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return absl::UnavailableError("fio fails: " + out);
  return out;
}

std::string OwnFile(const FioPattern& pattern) { return pattern.folder + "/fio-limit"; }

// As fio wants them: colons between files, and those of a name escaped.
std::string Names(const FioPattern& pattern) {
  if (pattern.files.empty()) return absl::StrReplaceAll(OwnFile(pattern), {{":", "\\:"}});
  return absl::StrJoin(pattern.files, ":", [](std::string* out, const std::string& file) {
    absl::StrAppend(out, absl::StrReplaceAll(file, {{":", "\\:"}}));
  });
}

// 10^9 bytes a second of one run.
absl::StatusOr<double> RunFio(const FioPattern& pattern, double seconds) {
  const auto ms = static_cast<uint64_t>(std::max(seconds, 0.1) * 1000);
  std::vector<std::string> words = {"fio",
                                    "--name=limit",
                                    "--filename=" + Names(pattern),
                                    "--ioengine=io_uring",
                                    "--fixedbufs=1",  // As the log has them. It gains a third at times.
                                    "--registerfiles=1",
                                    "--direct=1",
                                    std::string("--rw=") + (pattern.write ? "write" : "randread"),
                                    "--bs=" + std::to_string(pattern.size),
                                    "--iodepth=" + std::to_string(pattern.depth),
                                    "--time_based=1",
                                    "--runtime=" + std::to_string(ms) + "ms",
                                    "--output-format=json"};
  if (pattern.files.empty()) {
    words.push_back("--size=" + std::to_string(kFileBytes));
  } else {
    words.insert(words.end(), {"--readonly", "--file_service_type=random"});
  }
  const auto out = OutputOf(std::move(words));
  if (!out.ok()) return out.status();
  const size_t begin = out->find('{');
  const auto json =
      nlohmann::json::parse(begin == std::string::npos ? "" : out->substr(begin), nullptr, false);
  if (json.is_discarded() || !json.contains("jobs") || json["jobs"].empty()) {
    return absl::UnavailableError("fio says nothing that can be read: " + out->substr(0, 200));
  }
  return json["jobs"][0][pattern.write ? "write" : "read"].value("bw_bytes", 0.0) / 1e9;
}

struct FileGoes {
  explicit FileGoes(std::string name) : path(std::move(name)) {}
  ~FileGoes() { unlink(path.c_str()); }
  const std::string path;
};

}  // namespace

absl::StatusOr<BenchLimit> FioLimit(const FioPattern& pattern) {
  // The first run makes the file, and tells whether fio works at all.
  const absl::StatusOr<double> first = RunFio(pattern, 0.1);
  if (!first.ok()) return first.status();
  BenchLimit limit;
  limit.name = std::string("fio ") + (pattern.write ? "write" : "randread") + " depth " +
               std::to_string(pattern.depth);
  // Two owners: the limit and its copies.
  limit.slice = [pattern, file = std::make_shared<FileGoes>(OwnFile(pattern))](double seconds) {
    const absl::StatusOr<double> rate = RunFio(pattern, seconds);
    return rate.ok() ? *rate : -1.0;
  };
  return limit;
}

}  // namespace cistern
