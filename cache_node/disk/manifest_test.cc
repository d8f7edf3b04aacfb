#include "cache_node/disk/manifest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/random.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 20264;

struct Folder {
  Folder() {
    char name[] = "/tmp/cistern-manifest-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST(Manifest, KeepsWhatWasCommittedInGroups) {
  const Folder folder;
  {
    auto opened = OpenRocksdbManifest(folder.path + "/manifest");
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_FALSE(opened->rebuilt);
    Manifest manifest(std::move(opened->store), {}, /*threaded=*/true);
    for (int i = 0; i < 1000; ++i) manifest.Put("extent/" + std::to_string(i % 50), std::to_string(i));
    manifest.Delete("extent/3");
    manifest.Flush();
    EXPECT_LT(manifest.commits(), 1000u);  // Groups.
    EXPECT_EQ(manifest.failed_commits(), 0u);
  }
  const auto values = ReadRocksdbManifest(folder.path + "/manifest");
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->size(), 49u);
  EXPECT_EQ(values->at("extent/4"), "954");
}

// F37: whatever is flipped in it, a manifest opens, whole or anew, and says which.
TEST(Manifest, F37_DamageIsReplacedAndSaid) {
  Random random(kSeed);
  int rebuilt = 0;
  for (int round = 0; round < 12; ++round) {
    const Folder folder;
    const std::string dir = folder.path + "/manifest";
    {
      auto opened = OpenRocksdbManifest(dir);
      ASSERT_TRUE(opened.ok());
      Manifest manifest(std::move(opened->store), {}, false);
      for (int i = 0; i < 20; ++i) manifest.Put("extent/" + std::to_string(i), "sealed life=7");
    }
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
      if (entry.is_regular_file() && entry.file_size() > 0) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (int flip = 0; flip < 3; ++flip) {
      const auto& file = files[random.Below(files.size())];
      std::fstream io(file, std::ios::in | std::ios::out | std::ios::binary);
      const auto at = static_cast<std::streamoff>(random.Below(std::filesystem::file_size(file)));
      io.seekg(at);
      const int byte = io.get();
      io.seekp(at);
      io.put(static_cast<char>(byte ^ (1 << random.Below(8))));
    }
    auto opened = OpenRocksdbManifest(dir);
    ASSERT_TRUE(opened.ok()) << "round " << round << ": " << opened.status();
    rebuilt += opened->rebuilt;
    EXPECT_EQ(opened->rebuilt, !opened->why.empty());
    const auto values = opened->store->LoadAll();
    ASSERT_TRUE(values.ok());
    for (const auto& [key, value] : *values) EXPECT_EQ(value, "sealed life=7") << "round " << round;
  }
  EXPECT_GT(rebuilt, 0);
}

}  // namespace
}  // namespace cistern
