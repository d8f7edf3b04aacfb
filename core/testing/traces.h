#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "core/eviction/replay.h"
#include "core/trace_reader.h"

namespace cistern {

// Path of a public request trace: in the folder CISTERN_TRACES, or beside the sources (CMake passes that
// folder). Empty when it is not there: the test then skips by name.
inline std::string TraceFile(const char* name) {
  const char* const folder = std::getenv("CISTERN_TRACES");
  const std::filesystem::path path =
      std::filesystem::path(folder != nullptr ? folder : CISTERN_TRACES_DEFAULT) / name;
  return std::filesystem::exists(path) ? path.string() : std::string();
}

inline constexpr const char* kConversationTrace = "conversation_trace.jsonl";
inline constexpr const char* kSyntheticTrace = "synthetic_trace.jsonl";
inline constexpr const char* kAgenticTrace = "agentic_a_512.jsonl.zst";

// Of how many cache sizes tests replay a whole trace. Sanitizers make a replay ten times as long, and look
// for what a replay does to memory, not for its figures: the smallest size evicts most.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kReplaySizes = 1;
#else
inline constexpr int kReplaySizes = 6;
#endif

// The ids of every request of a file, in order; empty when it cannot be read whole or any line is broken.
inline std::vector<std::vector<uint32_t>> ReadTraceIds(const std::string& path) {
  std::vector<std::vector<uint32_t>> requests;
  auto reader = TraceReader::Open(path);
  if (!reader.ok()) return {};
  bool all_good = true;
  const auto broken = [&all_good](uint64_t, std::string_view) { all_good = false; };
  for (TraceRequest request; (*reader)->Next(request, broken);) {
    requests.emplace_back(request.hash_ids.begin(), request.hash_ids.end());
  }
  if (!all_good || !(*reader)->status().ok()) return {};
  return requests;
}

// The whole file as policies see it; without requests when it cannot be read whole.
inline ReplayTrace ReadReplayTrace(const std::string& path) {
  bool all_good = true;
  auto trace = LoadReplayTrace(path, [&all_good](uint64_t, std::string_view) { all_good = false; });
  return trace.ok() && all_good ? *std::move(trace) : ReplayTrace{};
}

}  // namespace cistern
