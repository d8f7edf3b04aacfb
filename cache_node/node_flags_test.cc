#include "cache_node/node_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace cistern {
namespace {

using ::testing::HasSubstr;

TEST(NodeFlags, OthersAreToldTheAdvertisedHostWithThePortThatWasTaken) {
  EXPECT_EQ(AdvertisedAddress("0.0.0.0:4711", "10.0.0.7"), "10.0.0.7:4711");
  EXPECT_EQ(AdvertisedAddress("[::]:4711", "[fd00::7]"), "[fd00::7]:4711");
  EXPECT_EQ(AdvertisedAddress("10.0.0.8:4711", ""), "10.0.0.8:4711");
}

TEST(NodeFlags, F55_NamesTheFlagThatIsWrong) {
  NodeOptions good;
  good.data_dir = "d";
  EXPECT_TRUE(ValidateNodeOptions(good).ok()) << ValidateNodeOptions(good);
  const auto message = [&](auto change) {
    NodeOptions options = good;
    change(options);
    const absl::Status status = ValidateNodeOptions(options);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  EXPECT_THAT(message([](NodeOptions& o) { o.router = "nowhere"; }), HasSubstr("--router"));
  EXPECT_THAT(message([](NodeOptions& o) { o.listen = "127.0.0.1"; }), HasSubstr("--listen"));
  EXPECT_THAT(message([](NodeOptions& o) { o.listen = "127.0.0.1:65535", o.shards = 2; }),
              HasSubstr("--listen"));
  EXPECT_THAT(message([](NodeOptions& o) { o.listen = "0.0.0.0:0"; }), HasSubstr("--advertise IP"));
  EXPECT_THAT(message([](NodeOptions& o) { o.listen = "[::]:0"; }), HasSubstr("--advertise IP"));
  EXPECT_THAT(message([](NodeOptions& o) { o.advertise = "node-7.local"; }), HasSubstr("--advertise"));
  EXPECT_THAT(message([](NodeOptions& o) { o.advertise = "10.0.0.1:7"; }), HasSubstr("--advertise"));
  EXPECT_THAT(message([](NodeOptions& o) { o.listen = "0.0.0.0:0", o.advertise = "0.0.0.0"; }),
              HasSubstr("--advertise"));
  EXPECT_THAT(message([](NodeOptions& o) { o.fabric = "ib0"; }), HasSubstr("--fabric"));
  EXPECT_THAT(message([](NodeOptions& o) { o.fabric = "127.0.0.1:65535", o.shards = 2; }),
              HasSubstr("--fabric"));
  EXPECT_THAT(message([](NodeOptions& o) { o.transport = "ucx"; }), HasSubstr("--fabric"));
  EXPECT_THAT(message([](NodeOptions& o) { o.require_rdma = true; }), HasSubstr("--fabric"));
  EXPECT_THAT(message([](NodeOptions& o) { o.shards = 0; }), HasSubstr("--shards"));
  EXPECT_THAT(message([](NodeOptions& o) { o.shards = 65; }), HasSubstr("--shards"));
  EXPECT_THAT(message([](NodeOptions& o) { o.ram_bytes = 0; }), HasSubstr("--ram"));
  EXPECT_THAT(message([](NodeOptions& o) { o.ram_bytes = 12u << 20, o.shards = 4; }), HasSubstr("--ram"));
  EXPECT_THAT(message([](NodeOptions& o) { o.policy = "belady"; }), HasSubstr("--policy"));
  EXPECT_THAT(message([](NodeOptions& o) { o.node_id = "a b"; }), HasSubstr("--node-id"));
}

TEST(NodeFlags, RefusesAFlagThatDoesNothingWithoutAnother) {
  NodeOptions without;
  for (const auto& [flag, needs] : {std::pair("--on-demotion", "--nvme SIZE"),
                                    {"--write-through", "--nvme SIZE"},
                                    {"--nvme-daily-writes", "--nvme SIZE"},
                                    {"--crash-at", "--nvme SIZE"},
                                    {"--hbm-bandwidth", "--hbm SIZE"},
                                    {"--fabric-transports", "--fabric HOST:PORT"},
                                    {"--fabric-devices", "--fabric HOST:PORT"}}) {
    const auto given = [flag = std::string(flag)](const char* asked) { return flag == asked; };
    const absl::Status refused = CheckLoneFlags(without, given);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << flag;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(std::string(flag) + " does nothing without " + needs));
    NodeOptions with;
    with.nvme_bytes = with.hbm_bytes = 1;
    with.fabric = "127.0.0.1:0";
    EXPECT_TRUE(CheckLoneFlags(with, given).ok()) << flag;
  }
  EXPECT_TRUE(CheckLoneFlags(without, [](const char*) { return false; }).ok());
}

TEST(NodeFlags, FindsTheClustersKeyBesideOrAboveTheDataFolder) {
  std::string pattern = (std::filesystem::temp_directory_path() / "cistern-flags-XXXXXX").string();
  const std::string root = ::mkdtemp(pattern.data());
  std::filesystem::create_directories(root + "/nodes/node-1");
  EXPECT_EQ(FindClusterKey(root + "/nodes/node-1"), "");
  std::ofstream(root + "/cluster.key") << "x";
  EXPECT_EQ(FindClusterKey(root + "/nodes/node-1/"), root + "/cluster.key");
  std::ofstream(root + "/nodes/node-1/cluster.key") << "x";
  EXPECT_EQ(FindClusterKey(root + "/nodes/node-1"), root + "/nodes/node-1/cluster.key");
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace cistern
