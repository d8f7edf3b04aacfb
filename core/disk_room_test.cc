#include "core/disk_room.h"

#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cistern {
namespace {

TEST(DiskRoom, NamesWhatIsMissing) {
  const std::string there = std::filesystem::temp_directory_path().string();
  for (const std::string& folder : {there, there + "/not/made/yet"}) {
    EXPECT_TRUE(CheckDiskRoom(folder, 0).ok()) << folder;
    const absl::Status full = CheckDiskRoom(folder, std::numeric_limits<uint64_t>::max());
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
    EXPECT_THAT(std::string(full.message()), testing::AllOf(testing::HasSubstr("the disk of " + folder),
                                                            testing::HasSubstr("free space")));
  }
}

TEST(DiskRoom, LeavesToTheWriterWhatTheSystemDoesNotTell) {
  EXPECT_TRUE(CheckDiskRoom("", std::numeric_limits<uint64_t>::max()).ok());
}

}  // namespace
}  // namespace cistern
