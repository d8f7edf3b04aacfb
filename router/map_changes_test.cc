#include "router/map_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cistern {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ClusterMap MapOf(std::vector<NodeEntry> nodes) {
  ClusterMap map;
  map.nodes = std::move(nodes);
  return map;
}
NodeEntry Node(const std::string& id, uint64_t incarnation, NodeState state = NodeState::kActive) {
  NodeEntry node;
  node.id = id;
  node.incarnation = incarnation;
  node.state = state;
  node.shards = {{"10.0.0.1:" + std::to_string(7000 + incarnation), "", ""}};
  return node;
}

TEST(MapChanges, NamesWhoCameAndWhoWent) {
  const ClusterMap one = MapOf({Node("node-1", 1)});
  EXPECT_THAT(MapChanges(MapOf({}), one),
              ElementsAre(HasSubstr("node-1 incarnation 1 joined from 10.0.0.1:7001")));
  EXPECT_THAT(MapChanges(one, one), IsEmpty());
  const ClusterMap gone = MapOf({Node("node-1", 1, NodeState::kGone)});
  EXPECT_THAT(MapChanges(one, gone), ElementsAre(HasSubstr("is silent")));
  EXPECT_THAT(MapChanges(gone, one), ElementsAre(HasSubstr("heard again")));
  EXPECT_THAT(MapChanges(gone, MapOf({Node("node-1", 2)})),
              ElementsAre(HasSubstr("new process at 10.0.0.1:7002")));
  EXPECT_THAT(MapChanges(one, MapOf({Node("node-1", 1, NodeState::kDraining)})),
              ElementsAre(HasSubstr("draining")));
  EXPECT_THAT(MapChanges(one, MapOf({})), ElementsAre("node-1 is forgotten"));
}

TEST(MapChanges, AQuickRestartIsNamedWithBothAddresses) {
  EXPECT_THAT(
      MapChanges(MapOf({Node("node-1", 1)}), MapOf({Node("node-1", 2)})),
      ElementsAre(testing::AllOf(HasSubstr("10.0.0.1:7002 takes over"), HasSubstr("at 10.0.0.1:7001"))));
}

}  // namespace
}  // namespace cistern
