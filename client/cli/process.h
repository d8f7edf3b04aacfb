#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cistern {

// A process that may be nobody's child by now. The start time (clock ticks since boot, /proc/PID/stat) tells
// it from a later process with the same number: nothing is signalled unless both agree.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

// Start time of a living process (a zombie is none); nothing when there is no such process. Unavailable when
// that cannot be read, as with no descriptor left: it may be alive or not.
absl::StatusOr<std::optional<uint64_t>> StartTicks(pid_t pid);
// Whether it may still run: false is certain.
bool IsAlive(const ProcessId& process);

// Keeps the environment as it is now for the processes that Spawn starts. Call first in main.
void CaptureEnvironment();

struct SpawnRequest {
  std::string program;            // Path.
  std::vector<std::string> args;  // Without the program's own name.
  std::string log;                // Standard output and error are appended to it; input is /dev/null.
};
// Starts a process of its own session that outlives us. Unavailable when it cannot be started, with the
// system's words.
absl::StatusOr<ProcessId> Spawn(const SpawnRequest& request);

// How a child of ours ended, if it did; reaps it. "exit 2" or "signal 9".
std::optional<std::string> TryReap(pid_t pid);

// SIGTERM to all, then SIGKILL to those left after `patience_ms`. Per process: "gone" (was not running),
// "ended", "killed", or "unknown": no child of ours, and whether it runs could not be read, so nothing was
// signalled.
std::vector<std::string> EndProcesses(absl::Span<const ProcessId> processes, int patience_ms);

// The folder of the running program, where its siblings lie.
std::string ProgramFolder();

// The last non-empty line that was written to `path` behind `from`; empty when there is none.
std::string LastLine(const std::string& path, uint64_t from);
// What a log of ours warns of behind `from`, the first kWarningsMax.
inline constexpr size_t kWarningsMax = 4;
std::vector<std::string> Warnings(const std::string& path, uint64_t from);
uint64_t FileBytes(const std::string& path);  // 0 when it is not there.

}  // namespace cistern
