#include "cache_node/disk/fsck.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cache_node/disk/disk_log.h"
#include "cache_node/disk/file_disk.h"
#include "cache_node/disk/id_file.h"
#include "core/crc32c.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 20266;

// A data folder with a log of some parts, written as a node does.
class FsckTest : public ::testing::Test {
 protected:
  FsckTest() {
    char name[] = "/tmp/cistern-fsck-XXXXXX";
    path = mkdtemp(name);
  }
  ~FsckTest() override { std::filesystem::remove_all(path); }

  void Fill(uint32_t parts, bool stop, uint64_t seed = kSeed) {
    auto manifest_store = OpenRocksdbManifest(path + "/manifest");
    ASSERT_TRUE(manifest_store.ok());
    const ManifestValues values = *manifest_store->store->LoadAll();
    Manifest manifest(std::move(manifest_store->store), values, true);
    auto disk = FileDisk::Open(path + "/nvme");
    ASSERT_TRUE(disk.ok());
    BootClock clock;
    Random random(seed);
    auto log = DiskLog::Open({.capacity_bytes = uint64_t{4} * kExtentBytes, .log = nullptr}, **disk, manifest,
                             clock, random);
    ASSERT_TRUE(log.ok()) << log.status();
    const std::vector<std::byte> bytes(50'000, std::byte{42});
    for (uint32_t i = 0; i < parts;) {
      RecordHeader header;
      StoreLe<uint32_t>(header.block.hash.bytes.data(), i + 1);
      header.parts.push_back(
          {.coord = {}, .at = 0, .length = 50'000, .crc = Crc32c(bytes.data(), bytes.size())});
      const std::byte* data[] = {bytes.data()};
      if ((*log)->Append(header, data) == DiskLog::Appended::kOk) ++i;
      (*log)->Poll();
    }
    while ((*log)->writer().ended() < parts || (*log)->recovering()) (*log)->Poll();
    if (stop) {
      const auto leaving = [](const auto& one) { return one.second.state == ExtentState::kLeaving; };
      const auto& extents = (*log)->table().all();
      while (std::any_of(extents.begin(), extents.end(), leaving)) (*log)->Poll();
      (*log)->Stop();
      while (!(*log)->IsIdle()) (*log)->Poll();
    }
    manifest.Flush();
    disk->reset();
  }
  // What the manifest says of the first extent.
  std::string FirstExtent() {
    const absl::StatusOr<ManifestValues> values = ReadRocksdbManifest(path + "/manifest");
    return values.ok() && values->contains("extent/00000000") ? values->at("extent/00000000") : "";
  }
  void Flip(uint64_t at) {
    std::fstream io(path + "/nvme/extent-00000000", std::ios::in | std::ios::out | std::ios::binary);
    io.seekg(static_cast<std::streamoff>(at));
    const int byte = io.get();
    io.seekp(static_cast<std::streamoff>(at));
    io.put(static_cast<char>(byte ^ 4));
  }
  std::string path;
};

TEST_F(FsckTest, AStoppedAndAKilledLogAreClean) {
  Fill(100, true);
  auto report = CheckDataFolder(path);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->clean()) << report->problems[0].kind << " " << report->problems[0].where;
  EXPECT_EQ(report->parts, 100u);
  EXPECT_EQ(FirstExtent().substr(0, 6), "sealed");
  Fill(30, false);  // The same keys again, in another extent, which stays open.
  report = CheckDataFolder(path);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->clean()) << report->problems[0].kind << " " << report->problems[0].where;
  EXPECT_EQ(report->parts, 100u);
}

// A footer that recovery owes an extent takes two requests to the disk, and the end may come before them.
TEST_F(FsckTest, AnExtentIsSealedOnceItsFooterIsThere) {
  Fill(30, false);
  Fill(0, false);  // Ends as soon as all is indexed.
  EXPECT_EQ(FirstExtent().substr(0, 4), "open");
  auto report = CheckDataFolder(path);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->clean()) << report->problems[0].kind << " " << report->problems[0].where;
}

TEST_F(FsckTest, NamesWhatIsWrongAndWhere) {
  Fill(10, true);
  Flip(kPageBytes * 2 + 1000);  // The first record's payload.
  auto report = CheckDataFolder(path);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->problem_count, 1u);
  EXPECT_EQ(report->problems[0].kind, "payload");
  EXPECT_NE(report->problems[0].where.find("extent-00000000 at 4096"), std::string::npos);
  Flip(kPageBytes * 2 + 1000);
  Flip(100);  // The extent's header.
  report = CheckDataFolder(path);
  ASSERT_EQ(report->problem_count, 1u);
  EXPECT_EQ(report->problems[0].kind, "extent_header");
  Flip(100);
  std::ofstream(path + "/nvme/notes.txt") << "mine";
  report = CheckDataFolder(path);
  ASSERT_EQ(report->problem_count, 1u);
  EXPECT_EQ(report->problems[0].kind, "stray_file");
  std::filesystem::remove(path + "/nvme/notes.txt");
  std::filesystem::remove(path + "/nvme/extent-00000000");
  report = CheckDataFolder(path);
  ASSERT_GE(report->problem_count, 1u);
  EXPECT_EQ(report->problems[0].kind, "manifest_extent");
  std::filesystem::remove_all(path + "/manifest");
  report = CheckDataFolder(path);
  EXPECT_EQ(report->problems[0].kind, "manifest");
}

TEST_F(FsckTest, AnotherLogsExtentIsFound) {
  Fill(100, true, kSeed + 1);
  std::filesystem::rename(path + "/nvme/extent-00000000", path + "/kept");
  std::filesystem::remove_all(path + "/nvme");
  std::filesystem::remove_all(path + "/manifest");
  Fill(100, true);
  std::filesystem::rename(path + "/kept", path + "/nvme/extent-00000000");
  const auto report = CheckDataFolder(path);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->problem_count, 1u);
  EXPECT_EQ(report->problems[0].kind, "manifest_extent");
  EXPECT_NE(report->problems[0].where.find("another log's file"), std::string::npos);
}

// As a start sees it: what lies behind the torn header counts for nothing, and the start writes it anew.
TEST_F(FsckTest, AHeaderThatWasTornAsAUseBeganIsOneProblemUntilAStart) {
  Fill(100, true);
  {
    auto manifest = OpenRocksdbManifest(path + "/manifest");
    ASSERT_TRUE(manifest.ok());
    const std::string key = ExtentRowKey(0);
    std::optional<ExtentRow> row = DecodeExtentRow((*manifest->store->LoadAll())[key]);
    ASSERT_TRUE(row.has_value());
    row->state = ExtentState::kOpen;
    ++row->life;
    ASSERT_TRUE(manifest->store->Commit({{key, EncodeExtentRow(*row)}}).ok());
  }
  Flip(100);
  const auto report = CheckDataFolder(path);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->problem_count, 1u);
  EXPECT_EQ(report->problems[0].kind, "extent_header");
  EXPECT_EQ(report->parts, 0u);
  Fill(1, true);
  EXPECT_TRUE(CheckDataFolder(path)->clean());
}

// What lies behind two pages that do not read is looked for, as by a start: the same problems, the same
// parts.
TEST_F(FsckTest, BehindABadHeaderAndFirstRecordIsTheRest) {
  Fill(30, false);
  ASSERT_EQ(FirstExtent().substr(0, 5), "open ");
  Flip(100);
  Flip(kPageBytes + 100);
  const auto report = CheckDataFolder(path);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->problem_count, 2u);
  EXPECT_EQ(report->problems[0].kind, "extent_header");
  EXPECT_EQ(report->problems[1].kind, "record");
  EXPECT_EQ(report->parts, 29u);
}

// Beside a node that has the folder: what it has sealed, and nothing of what it writes.
TEST_F(FsckTest, OnlineItLooksAtSealedExtentsAlone) {
  Fill(100, true);
  Fill(30, false);
  const int lock = ::open((path + "/lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  auto report = CheckDataFolder(path);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->online);
  EXPECT_TRUE(report->clean());
  EXPECT_EQ(report->parts, 100u);
  EXPECT_GE(report->open_extents, 1u);
  Flip(kPageBytes * 2 + 1000);
  report = CheckDataFolder(path);
  ASSERT_EQ(report->problem_count, 1u);
  EXPECT_EQ(report->problems[0].kind, "payload");
  ::close(lock);
  EXPECT_FALSE(CheckDataFolder(path)->online);
}

// A folder of nothing a node leaves behind must not pass for a clean one; `lock` is in a router's, too.
TEST_F(FsckTest, AFolderThatIsNoNodesIsAnError) {
  std::ofstream(path + "/lock") << "1";
  EXPECT_TRUE(absl::IsNotFound(CheckDataFolder(path).status()));
  EXPECT_TRUE(absl::IsNotFound(CheckDataFolder("/").status()));
}

TEST_F(FsckTest, ADamagedIdIsFound) {
  ASSERT_TRUE(WriteNodeId(path, "node-1").ok());
  std::ofstream(path + "/cluster_id") << "no id";
  const auto report = CheckDataFolder(path);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->problem_count, 1u);
  EXPECT_EQ(report->problems[0].kind, "cluster_id");
  std::ofstream(path + "/node_id") << "";
  EXPECT_EQ(CheckDataFolder(path)->problem_count, 2u);
}

TEST_F(FsckTest, AFolderWithoutALogIsCleanAndNoFolderIsAnError) {
  ASSERT_TRUE(WriteNodeId(path, "node-1").ok());
  const auto report = CheckDataFolder(path);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->clean());
  EXPECT_TRUE(absl::IsNotFound(CheckDataFolder(path + "/none").status()));
}

}  // namespace
}  // namespace cistern
