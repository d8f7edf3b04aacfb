#include "core/process_start.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace cistern {

void OccupyStandardStreams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDONLY);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

absl::Status CheckOpenFiles(uint64_t least) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= least) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("open files: this process may have ", limit.rlim_cur,
                                                    ", and needs ", least, "; raise the limit (`ulimit -n ",
                                                    least, "` or more)"));
}

}  // namespace cistern
