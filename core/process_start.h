#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace cistern {

// What every program of the house does first in main.

// Opens /dev/null on each of the descriptors 0 to 2 that is closed, for reading alone: writing there goes on
// failing, and no file or socket that is opened later takes its number and gets what was meant for a reader.
void OccupyStandardStreams();

inline constexpr uint64_t kCliOpenFilesMin = 64;
inline constexpr uint64_t kDaemonOpenFilesMin = 256;  // A router or node alone; every connection takes more.

// FailedPrecondition when this process may open fewer files than `least`: libraries abort when they run out.
absl::Status CheckOpenFiles(uint64_t least);

}  // namespace cistern
