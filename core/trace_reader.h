#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/trace/line_source.h"

namespace cistern {

inline constexpr size_t kTraceLineBytesMax = 8u << 20;
inline constexpr size_t kTraceIdsPerRequestMax = 1u << 18;
inline constexpr uint32_t kTraceBlockTokensDefault = 512;  // Mooncake-style lines do not say it.

// One request of a trace. Equal ids mean equal prefixes: an id names its block and all that precedes it.
struct TraceRequest {
  uint64_t line = 0;         // Counted from 1.
  int64_t timestamp_ms = 0;  // From the trace's start. Not in order across sessions of the delta form.
  uint32_t input_tokens = 0;
  uint32_t output_tokens = 0;
  uint32_t block_tokens = kTraceBlockTokensDefault;
  uint64_t session = 0;  // 0 where the file names none.
  // One id a block. The delta form's ids are local to a session; here they carry it in their high 32 bits.
  std::vector<uint64_t> hash_ids;
};

// Reads a request trace in file order: Mooncake-style JSON lines or the delta form (traces of coding-agent
// sessions), each plain or zstd-compressed; the first line that parses decides nothing, every line is
// recognised by its own fields. Input is not trusted: a line that does not parse is reported by number and
// left out, and lines have a bounded length. In the delta form the lines of a session build on each other:
// after a broken one the rest of that session is reported and left out, up to a line that keeps nothing. One
// thread; holds one line and the decompressor's window.
class TraceReader {
 public:
  using BrokenLine = absl::FunctionRef<void(uint64_t line, std::string_view why)>;

  // NotFound or PermissionDenied with the path when it cannot be opened; InvalidArgument for a folder.
  static absl::StatusOr<std::unique_ptr<TraceReader>> Open(const std::string& path,
                                                           int window_log_max = kZstdWindowLogMax);
  virtual ~TraceReader() = default;

  // The next whole request; false at the end, or where the file cannot be read on (see status()). Reuses
  // `out`'s memory.
  virtual bool Next(TraceRequest& out, BrokenLine broken) = 0;
  // OK at the end of a good file; DataLoss for a damaged or cut-off .zst, Unavailable for a failed read.
  virtual absl::Status status() const = 0;
};

}  // namespace cistern
