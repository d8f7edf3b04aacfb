#include "client/cli/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string_view>

#include "absl/status/status.h"

namespace cistern {
namespace {

constexpr int kWaitStepMs = 10;
constexpr size_t kStatBytesMax = 1024;  // 52 numbers and a name.
constexpr size_t kLogTailBytesMax = 65536;

std::vector<std::string>& KeptEnvironment() {
  static auto* kept = new std::vector<std::string>;
  return *kept;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// Runs in the child: async-signal-safe calls only. Tells errno through `report` when the program cannot be
// run.
[[noreturn]] void RunChild(const char* program, char* const* argv, char* const* envp, int log, int report) {
  setsid();
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, 0);
  dup2(log, 1);
  dup2(log, 2);
  const int kept = dup2(report, 3);
  fcntl(kept, F_SETFD, FD_CLOEXEC);
  close_range(4, ~0u, 0);  // A caller that reads our output to its end must not wait for the cluster's.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  execve(program, argv, envp);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(kept, &error, sizeof(error));
  _exit(127);
}

}  // namespace

absl::StatusOr<std::optional<uint64_t>> StartTicks(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  char raw[kStatBytesMax];
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = fd >= 0 ? read(fd, raw, sizeof(raw)) : -1;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (bytes < 0) {
    if (error == ENOENT || error == ESRCH) return std::nullopt;
    return absl::UnavailableError("cannot read " + path + ": " + strerror(error));
  }
  const std::string text(raw, static_cast<size_t>(bytes));
  const size_t close = text.rfind(')');  // The name before it may hold anything.
  if (close == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(close + 1));
  std::string state, skipped;
  fields >> state;
  if (state == "Z" || state == "X") return std::nullopt;
  for (int i = 0; i < 18; ++i) fields >> skipped;  // Fields 4 to 21; 22 is the start time.
  uint64_t ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  return ticks;
}

namespace {

// Nobody else gets the number of a child of ours until we have reaped it.
std::optional<bool> ChildRuns(pid_t pid) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return std::nullopt;
  return info.si_pid == 0;
}

// Nothing: no child of ours, and not to be read.
std::optional<bool> Runs(const ProcessId& process) {
  if (process.pid <= 0) return false;
  const absl::StatusOr<std::optional<uint64_t>> ticks = StartTicks(process.pid);
  if (!ticks.ok()) return ChildRuns(process.pid);
  return *ticks == std::optional<uint64_t>(process.start_ticks);
}

}  // namespace

bool IsAlive(const ProcessId& process) { return Runs(process).value_or(true); }

void CaptureEnvironment() {
  KeptEnvironment().clear();
  for (char** entry = environ; *entry != nullptr; ++entry) KeptEnvironment().push_back(*entry);
}

absl::StatusOr<ProcessId> Spawn(const SpawnRequest& request) {
  const auto failed = [&](const std::string& what, int error) {
    return absl::UnavailableError("cannot start " + request.program + ": " + what + ": " + strerror(error));
  };
  const int log = open(request.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return failed("log " + request.log, errno);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    close(log);
    return failed("pipe", errno);
  }
  std::vector<std::string> words = request.args;
  words.insert(words.begin(), request.program);
  std::vector<std::string> environment = KeptEnvironment();
  const std::vector<char*> argv = Pointers(words), envp = Pointers(environment);
  const pid_t pid = fork();
  if (pid == 0) RunChild(request.program.c_str(), argv.data(), envp.data(), log, report[1]);
  const int fork_error = errno;
  close(log);
  close(report[1]);
  int error = 0;
  const ssize_t got = pid > 0 ? read(report[0], &error, sizeof(error)) : 0;  // Ends at once when exec worked.
  close(report[0]);
  if (pid < 0) return failed("fork", fork_error);
  if (got == sizeof(error)) {
    waitpid(pid, nullptr, 0);
    return failed("exec", error);
  }
  const absl::StatusOr<std::optional<uint64_t>> ticks = StartTicks(pid);
  if (!ticks.ok()) {  // Nobody could find it again to end it.
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return absl::UnavailableError("cannot start " + request.program + ": " +
                                  std::string(ticks.status().message()));
  }
  return ProcessId{pid, ticks->value_or(0)};  // 0: it ended already; TryReap says how.
}

std::optional<std::string> TryReap(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

std::vector<std::string> EndProcesses(absl::Span<const ProcessId> processes, int patience_ms) {
  std::vector<std::string> how;
  for (const ProcessId& process : processes) {
    const std::optional<bool> runs = Runs(process);
    how.push_back(!runs ? "unknown" : *runs ? "ended" : "gone");
    // A stopped process gets its SIGTERM when it goes on.
    if (how.back() == "ended") kill(process.pid, SIGTERM), kill(process.pid, SIGCONT);
  }
  const auto all_gone = [&] {
    for (const ProcessId& process : processes) TryReap(process.pid);
    // What is unknown was not signalled: nothing to wait for.
    return std::none_of(processes.begin(), processes.end(),
                        [](const ProcessId& process) { return Runs(process).value_or(false); });
  };
  const auto wait_until_gone = [&](int milliseconds) {
    for (int waited = 0; !all_gone(); waited += kWaitStepMs) {
      if (waited >= milliseconds) return false;
      poll(nullptr, 0, kWaitStepMs);
    }
    return true;
  };
  if (wait_until_gone(patience_ms)) return how;
  for (size_t i = 0; i < processes.size(); ++i) {
    if (!Runs(processes[i]).value_or(false)) continue;
    kill(processes[i].pid, SIGKILL);
    how[i] = "killed";
  }
  wait_until_gone(patience_ms);
  return how;
}

std::string ProgramFolder() {
  char path[4096];
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof(path));
  if (bytes <= 0) return ".";
  const std::string whole(path, static_cast<size_t>(bytes));
  return whole.substr(0, whole.rfind('/'));
}

uint64_t FileBytes(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

std::string LastLine(const std::string& path, uint64_t from) {
  const uint64_t end = FileBytes(path);
  if (end > from + kLogTailBytesMax) from = end - kLogTailBytesMax;
  std::ifstream file(path);
  file.seekg(static_cast<std::streamoff>(from));
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

std::vector<std::string> Warnings(const std::string& path, uint64_t from) {
  constexpr std::string_view kMark = "] [warning] ";
  std::vector<std::string> found;
  std::ifstream file(path);
  file.seekg(static_cast<std::streamoff>(from));
  std::string line;
  while (found.size() < kWarningsMax && std::getline(file, line)) {
    if (const size_t at = line.find(kMark); at != std::string::npos)
      found.push_back(line.substr(at + kMark.size()));
  }
  return found;
}

}  // namespace cistern
