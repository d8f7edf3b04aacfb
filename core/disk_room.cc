#include "core/disk_room.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace cistern {

absl::Status CheckDiskRoom(const std::string& folder, uint64_t bytes) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(folder, error);
  while (!error && !std::filesystem::exists(there, error) && there.has_relative_path())
    there = there.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(there, error);
  if (error || space.available >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the disk of ", folder, " has ", space.available >> 10,
                                                   " KiB free of the ", bytes >> 10,
                                                   " that a new one takes; free space there, or use another "
                                                   "folder"));
}

}  // namespace cistern
