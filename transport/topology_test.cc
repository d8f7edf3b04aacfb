#include "transport/topology.h"

#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

Topology Recorded(const std::string& name) {
  std::ifstream file(std::string(CISTERN_TESTDATA) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  auto topology = ReadTopology(text.str());
  EXPECT_TRUE(topology.ok()) << topology.status();
  return topology.ok() ? *std::move(topology) : Topology{};
}

const NicChoice& Of(const Topology& topology, const std::string& what) {
  for (const NicChoice& choice : topology.choices) {
    if (choice.of == what) return choice;
  }
  ADD_FAILURE() << "nothing is chosen for " << what;
  static const NicChoice none;
  return none;
}

// Two sockets, each with two PCI switches, each of those with a GPU and a NIC; a further NIC hangs on the
// second socket alone.
TEST(Topology, GpuTakesTheNicOfItsSwitch) {
  const Topology topology = Recorded("topology_two_sockets.xml");
  EXPECT_THAT(topology.numa_nodes, ElementsAre(0, 1));
  ASSERT_THAT(topology.nics, SizeIs(5));
  ASSERT_THAT(topology.gpus, SizeIs(4));
  EXPECT_EQ(topology.nics[2].name, "mlx5_2");
  EXPECT_EQ(topology.nics[2].numa, 1);
  EXPECT_EQ(topology.gpus[0].name, "cuda0");
  for (int i = 0; i < 4; ++i) {
    const NicChoice& choice = Of(topology, "gpu cuda" + std::to_string(i));
    EXPECT_THAT(choice.nics, ElementsAre("mlx5_" + std::to_string(i)));
    EXPECT_EQ(choice.nearness, Nearness::kSameSwitch);
  }
}

TEST(Topology, NumaNodeTakesAllItsNicsAsRails) {
  const Topology topology = Recorded("topology_two_sockets.xml");
  EXPECT_THAT(Of(topology, "numa 0").nics, ElementsAre("mlx5_0", "mlx5_1"));
  EXPECT_THAT(Of(topology, "numa 1").nics, ElementsAre("mlx5_2", "mlx5_3", "mlx5_4"));
  EXPECT_EQ(Of(topology, "numa 0").nearness, Nearness::kSameNuma);
}

// One NIC, on the other socket than the GPU: it has to do, and says that it is far.
TEST(Topology, AFarNicIsTakenWhenThereIsNoOther) {
  const Topology topology = Recorded("topology_far_nic.xml");
  ASSERT_THAT(topology.nics, SizeIs(1));
  ASSERT_THAT(topology.gpus, SizeIs(1));
  EXPECT_EQ(topology.gpus[0].name, "0000:17:00.0") << "no driver has named it";
  EXPECT_THAT(Of(topology, "gpu 0000:17:00.0").nics, ElementsAre("mlx5_0"));
  EXPECT_EQ(Of(topology, "gpu 0000:17:00.0").nearness, Nearness::kSameMachine);
  EXPECT_EQ(Of(topology, "numa 1").nearness, Nearness::kSameNuma);
}

TEST(Topology, ReadsThisMachine) {
  const auto topology = ReadTopology();
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_FALSE(topology->numa_nodes.empty());
  EXPECT_EQ(topology->nics.empty(), topology->choices.empty());
}

TEST(Topology, RefusesWhatIsNoRecord) {
  EXPECT_EQ(ReadTopology("<topology").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadTopology("[]").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cistern
