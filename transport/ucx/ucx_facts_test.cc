#include "transport/ucx/ucx_facts.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/ucx/ucx_context.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As UCX 1.13.1 prints.
constexpr char kContext[] =
    "#     component 1  :  tcp\n"
    "#            md 1  :  component 1  tcp \n"
    "#      resource 0  :  md 0  dev 0  flags -- self/memory0\n"
    "#      resource 1  :  md 1  dev 1  flags -- tcp/lo\n"
    "#      resource 4  :  md 3  dev 3  flags -- rc_verbs/rxe0:1\n";
constexpr char kEndpoint[] =
    "# UCP endpoint 127.0.0.1:40404\n"
    "#               peer: <no debug data>\n"
    "#                 lane[0]:  5:tcp/eth0.0 md[1]      -> addr[0].md[1]/tcp/sysdev[255] rma_bw#0 am\n"
    "#                 lane[1]:  6:rc_verbs/rxe0:1.0 md[3] -> addr[2].md[3]/ib/sysdev[255] am am_bw#0\n"
    "#                 lane[2]:  6:rc_verbs/rxe0:1.0 md[3] -> addr[2].md[3]/ib/sysdev[255] rma_bw#1\n";

TEST(UcxFacts, ReadsLinksFromWhatUcxPrints) {
  EXPECT_THAT(ParseContextLinks(kContext), ElementsAre("self/memory0", "tcp/lo", "rc_verbs/rxe0:1"));
  EXPECT_THAT(ParseEndpointLinks(kEndpoint), ElementsAre("tcp/eth0", "rc_verbs/rxe0:1"));
  EXPECT_TRUE(ParseEndpointLinks("").empty());
  EXPECT_TRUE(ParseContextLinks("resource \nresource 1 : nothing\n").empty());
  EXPECT_TRUE(IsOneSidedLink("rc_mlx5/mlx5_0:1"));
  EXPECT_TRUE(IsOneSidedLink("dc_mlx5/mlx5_0:1"));
  EXPECT_FALSE(IsOneSidedLink("tcp/lo"));
}

TEST(UcxFacts, F28_RequireRdmaNamesWhatIsMissing) {
  FabricFacts facts;
  facts.library = "UCX 1.13.1";
  facts.links = {"tcp/eth0", "self/memory0"};
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("cistern-facts-" + std::to_string(getpid()));
  const std::string sys = folder / "sys", dev = folder / "dev";
  std::filesystem::create_directories(folder);
  const auto missing = [&] { return std::string(CheckRdma(facts, sys, dev).message()); };
  EXPECT_THAT(missing(), HasSubstr("tcp/eth0, self/memory0"));
  EXPECT_THAT(missing(), HasSubstr("no RDMA device in " + sys));
  std::filesystem::create_directories(sys + "/mlx5_0");
  EXPECT_THAT(missing(), HasSubstr("no " + dev));
  std::filesystem::create_directories(dev + "/uverbs0");
  EXPECT_THAT(missing(), HasSubstr("ulimit -l"));
  facts.rdma = true;
  EXPECT_TRUE(CheckRdma(facts, sys, dev).ok());
  std::filesystem::remove_all(folder);
}

TEST(UcxFacts, TellsTheWayToAGpuAndWhy) {
  FabricFacts facts;
  facts.library = "UCX 1.13.1";
  DecideGpuPath(false, false, facts);
  EXPECT_EQ(facts.gpu_path, "none: no GPU on this machine");
  DecideGpuPath(false, true, facts);
  EXPECT_EQ(facts.gpu_path, "pinned host staging: UCX 1.13.1 is built without CUDA");
  DecideGpuPath(true, true, facts);
  EXPECT_EQ(facts.gpu_path, "pinned host staging: UCX 1.13.1 handles CUDA memory, but no link is RDMA");
  EXPECT_FALSE(facts.gpu_direct);
  facts.rdma = true;
  DecideGpuPath(true, true, facts);
  EXPECT_TRUE(facts.gpu_direct);
  EXPECT_THAT(facts.gpu_path, HasSubstr("GPUDirect"));
}

TEST(UcxContext, AsksTheLibraryOfThisMachine) {
  FabricOptions options;
  options.transports = "tcp";
  const auto context = UcxContext::Open(options);
  ASSERT_TRUE(context.ok()) << context.status();
  const FabricFacts& facts = (*context)->facts();
  EXPECT_THAT(facts.library, HasSubstr("UCX "));
  EXPECT_THAT(facts.links, ::testing::Contains("tcp/lo"));
  EXPECT_THAT(facts.memory_types, ::testing::Contains("host"));
  EXPECT_FALSE(facts.rdma);
}

TEST(UcxContext, F28_RefusesToStartWithTcpAloneWhenRdmaIsRequired) {
  FabricOptions options;
  options.transports = "tcp";
  options.require_rdma = true;
  const auto context = UcxContext::Open(options);
  EXPECT_EQ(context.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(context.status().message(), HasSubstr("missing: "));
}

TEST(UcxContext, NamesADeviceThatIsNotHere) {
  FabricOptions options;
  options.devices = "mlx5_77:1";
  options.transports = "rc,tcp";
  const auto context = UcxContext::Open(options);
  EXPECT_FALSE(context.ok());
  EXPECT_THAT(context.status().message(), HasSubstr("mlx5_77:1"));
}

}  // namespace
}  // namespace cistern
