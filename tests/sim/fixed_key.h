#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "core/check.h"
#include "core/ticket.h"

namespace cistern {

// A cluster key that is the same in every process, for tests whose histories must not differ. ClusterKey
// reads files alone, so the digits come from one that lives in memory.
inline ClusterKey FixedClusterKey() {
  const std::string text = std::string(64, 'a') + "\n";
  const int fd = memfd_create("key", MFD_CLOEXEC);
  CISTERN_CHECK(fd >= 0);
  CISTERN_CHECK(fchmod(fd, 0600) == 0);
  CISTERN_CHECK(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  absl::StatusOr<ClusterKey> key = ClusterKey::Load("/proc/self/fd/" + std::to_string(fd));
  close(fd);
  CISTERN_CHECK(key.ok());
  return *key;
}

}  // namespace cistern
