#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cistern {

// What a new RocksDB of ours takes at least. Debian's RocksDB ends the process with a failed assertion when
// its first writes find a full disk, so whoever makes one asks first.
inline constexpr uint64_t kNewStateBytes = 256 << 10;

// OK when `folder`, or the nearest folder above it that is there, has so many bytes free; ResourceExhausted
// names both figures. OK, too, where the system does not tell: then the writer finds out.
absl::Status CheckDiskRoom(const std::string& folder, uint64_t bytes);

}  // namespace cistern
