#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct ZSTD_DCtx_s;

namespace cistern {

inline constexpr int kZstdWindowLogMax = 27;  // 128 MiB, what `zstd -d` takes by default.

// Lines of a file, plain or zstd-compressed (told by its first four bytes). Memory is bounded whatever the
// file holds: one line, one buffer and the decompressor's window. One thread.
class LineSource {
 public:
  // A file that asks for a larger window is DataLoss.
  static absl::StatusOr<std::unique_ptr<LineSource>> Open(const std::string& path,
                                                          int window_log_max = kZstdWindowLogMax);
  ~LineSource();
  LineSource(const LineSource&) = delete;
  LineSource& operator=(const LineSource&) = delete;

  enum class Got { kLine, kTooLong, kEnd };
  // The next line without its end; valid until the next call. kTooLong: over `bytes_max`, skipped whole.
  Got Next(size_t bytes_max, std::string_view& line);
  const absl::Status& status() const { return status_; }

 private:
  LineSource(std::string path, int fd, int window_log_max);
  bool Refill();      // More text in text_; false at the end or with status_ set.
  bool ReadInput();   // More file bytes in input_; the same.
  bool Decompress();  // More text out of input_.

  std::string path_;
  int fd_;
  const int window_log_max_;
  ZSTD_DCtx_s* zstd_ = nullptr;  // Null for a plain file.
  bool frame_open_ = false;      // Inside a zstd frame: the end of the file would be too early.
  bool first_ = true;            // Nothing was read yet.
  bool first_line_ = true;       // Next gave none yet.
  size_t input_bytes_ = 0;       // Asked of the file at one time.
  std::vector<char> input_;
  size_t input_at_ = 0;
  size_t input_end_ = 0;
  std::vector<char> text_;
  size_t text_at_ = 0;
  size_t text_end_ = 0;
  std::string line_;
  absl::Status status_;
};

}  // namespace cistern
