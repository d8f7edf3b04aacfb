#include "core/trace/line_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/bytes.h"

namespace cistern {
namespace {

constexpr size_t kInputBytesMin = 4 << 10, kInputBytes = 256 << 10;
constexpr size_t kTextBytes = 1 << 20;
constexpr char kGzipMagic[] = "\x1f\x8b";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // What some editors put before UTF-8.

}  // namespace

absl::StatusOr<std::unique_ptr<LineSource>> LineSource::Open(const std::string& path, int window_log_max) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const auto code = errno == ENOENT   ? absl::StatusCode::kNotFound
                      : errno == EACCES ? absl::StatusCode::kPermissionDenied
                                        : absl::StatusCode::kUnavailable;
    return absl::Status(code, absl::StrCat("open ", path, ": ", std::strerror(errno)));
  }
  std::unique_ptr<LineSource> source(new LineSource(path, fd, window_log_max));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no file"));
  }
  // A small file takes no more than it has; what a pipe or /proc has nobody knows.
  source->input_bytes_ = kInputBytes;
  if (S_ISREG(info.st_mode) && info.st_size > 0)
    source->input_bytes_ = std::clamp(static_cast<size_t>(info.st_size), kInputBytesMin, kInputBytes);
  return source;
}

LineSource::LineSource(std::string path, int fd, int window_log_max)
    : path_(std::move(path)), fd_(fd), window_log_max_(window_log_max) {}

LineSource::~LineSource() {
  ::close(fd_);
  ZSTD_freeDCtx(zstd_);
}

bool LineSource::ReadInput() {
  // Four bytes tell the format, so the first read may have to be several (a pipe).
  const size_t least = first_ ? 4 : 1;
  input_at_ = 0;
  input_end_ = 0;
  input_.resize(input_bytes_);
  while (input_end_ < least) {
    const ssize_t got = ::read(fd_, input_.data() + input_end_, input_.size() - input_end_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      status_ = absl::UnavailableError(absl::StrCat("read ", path_, ": ", std::strerror(errno)));
      return false;
    }
    if (got == 0) break;
    input_end_ += static_cast<size_t>(got);
  }
  if (first_ && input_end_ >= 2 && std::memcmp(input_.data(), kGzipMagic, 2) == 0) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(path_, " is gzip; a trace is plain or zstd: gunzip it first"));
    return false;
  }
  if (first_ && input_end_ >= 4 && LoadLe<uint32_t>(input_.data()) == ZSTD_MAGICNUMBER) {
    text_.resize(kTextBytes);
    zstd_ = ZSTD_createDCtx();
    if (zstd_ == nullptr ||
        ZSTD_isError(ZSTD_DCtx_setParameter(zstd_, ZSTD_d_windowLogMax, window_log_max_))) {
      status_ = absl::ResourceExhaustedError(absl::StrCat("decompressor for ", path_));
      return false;
    }
  }
  first_ = false;
  return input_end_ > 0;
}

bool LineSource::Decompress() {
  while (true) {
    ZSTD_outBuffer out = {text_.data(), text_.size(), 0};
    ZSTD_inBuffer in = {input_.data(), input_end_, input_at_};
    const size_t left = ZSTD_decompressStream(zstd_, &out, &in);
    if (ZSTD_isError(left)) {
      status_ = absl::DataLossError(absl::StrCat(path_, ": ", ZSTD_getErrorName(left)));
      return false;
    }
    // Between frames an empty input also asks for more, but then nothing moves.
    const bool moved = in.pos != input_at_ || out.pos != 0;
    frame_open_ = left != 0 && (frame_open_ || moved);
    input_at_ = in.pos;
    text_at_ = 0;
    text_end_ = out.pos;
    if (out.pos > 0) return true;
    if (input_at_ == input_end_ && !ReadInput()) {
      if (status_.ok() && frame_open_) status_ = absl::DataLossError(absl::StrCat(path_, " is cut off"));
      return false;
    }
  }
}

bool LineSource::Refill() {
  if (!status_.ok()) return false;
  if (first_ && !ReadInput()) return false;
  if (zstd_ != nullptr) return Decompress();
  if (input_at_ == input_end_ && !ReadInput()) return false;
  std::swap(text_, input_);
  text_at_ = input_at_;
  text_end_ = input_end_;
  input_at_ = input_end_ = 0;
  return true;
}

LineSource::Got LineSource::Next(size_t bytes_max, std::string_view& line) {
  line_.clear();
  bool any = false;
  bool too_long = false;
  const auto whole = [&](std::string_view found) {
    if (std::exchange(first_line_, false) && found.starts_with(kByteOrderMark))
      found.remove_prefix(kByteOrderMark.size());
    line = found;
    return Got::kLine;
  };
  while (text_at_ < text_end_ || Refill()) {
    any = true;
    const char* const from = text_.data() + text_at_;
    const size_t have = text_end_ - text_at_;
    const auto* const end = static_cast<const char*>(std::memchr(from, '\n', have));
    const size_t take = end == nullptr ? have : static_cast<size_t>(end - from);
    text_at_ += take + (end == nullptr ? 0 : 1);
    if (line_.size() + take > bytes_max) {
      too_long = true;
      line_.clear();
    }
    if (end != nullptr && !too_long && line_.empty()) {  // The common case: nothing to put together.
      return whole({from, take});
    }
    if (!too_long) line_.append(from, take);
    if (end != nullptr) break;
  }
  if (!any) return Got::kEnd;
  if (too_long) return Got::kTooLong;
  return whole(line_);
}

}  // namespace cistern
