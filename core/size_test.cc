#include "core/size.h"

#include <gtest/gtest.h>

namespace cistern {
namespace {

TEST(Size, ReadsPowersOf1024) {
  EXPECT_EQ(ParseSize("4096"), 4096);
  EXPECT_EQ(ParseSize("64K"), 65536);
  EXPECT_EQ(ParseSize("512M"), uint64_t{512} << 20);
  EXPECT_EQ(ParseSize("3G"), uint64_t{3} << 30);
  EXPECT_EQ(ParseSize("1TiB"), uint64_t{1} << 40);
  EXPECT_EQ(ParseSize("2kB"), 2048);
}

TEST(Size, RefusesWhatIsNoSizeOrTooLarge) {
  for (const char* text : {"", "G", "-1", "1.5G", "3X", "3GG", "3Gi", " 3G", "3 G", "99999999999999999999",
                           "17179869184G", "0x10"}) {
    EXPECT_EQ(ParseSize(text), std::nullopt) << text;
  }
}

TEST(Size, FormatIsReadBackExactly) {
  for (uint64_t bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{4097}, uint64_t{3} << 30, UINT64_MAX}) {
    EXPECT_EQ(ParseSize(FormatSize(bytes)), bytes) << FormatSize(bytes);
  }
}

}  // namespace
}  // namespace cistern
