#include "proto/control.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cistern {
namespace {

RegisterRequest Request() {
  RegisterRequest request;
  request.node_id = "node-1";
  request.cluster = ClusterId{};
  request.boot_nonce = 7;
  request.weight = 2;
  request.shards = {{"127.0.0.1:4000", "cistern-1", ""}, {"127.0.0.1:4001", "cistern-2", ""}};
  request.ram_bytes = 1 << 30;
  request.held_incarnation = 3;
  return request;
}

TEST(RegisterProof, ChangesWithEveryField) {
  const ClusterKey key = ClusterKey::Generate();
  std::set<std::string> proofs;
  auto add = [&](auto change) {
    RegisterRequest request = Request();
    change(request);
    EXPECT_TRUE(proofs.insert(RegisterProof(key, request)).second);
  };
  add([](RegisterRequest&) {});
  add([](RegisterRequest& r) { r.node_id = "node-2"; });
  add([](RegisterRequest& r) { r.cluster.reset(); });
  add([](RegisterRequest& r) { r.cluster->bytes[3] = 1; });
  add([](RegisterRequest& r) { r.boot_nonce = 8; });
  add([](RegisterRequest& r) { r.weight = 3; });
  add([](RegisterRequest& r) { r.ram_bytes = 5; });
  add([](RegisterRequest& r) { r.held_incarnation = 4; });
  add([](RegisterRequest& r) { r.shards[0].tcp = "127.0.0.1:4002"; });
  add([](RegisterRequest& r) { r.shards.pop_back(); });
  add([](RegisterRequest& r) { std::swap(r.shards[0].unix_name, r.shards[0].fabric); });
  add([](RegisterRequest& r) { std::swap(r.shards[0], r.shards[1]); });
  EXPECT_NE(RegisterProof(ClusterKey::Generate(), Request()), RegisterProof(key, Request()));
}

TEST(SameProof, NeedsEveryByte) {
  EXPECT_TRUE(SameProof("abc", "abc"));
  EXPECT_FALSE(SameProof("abc", "abd"));
  EXPECT_FALSE(SameProof("abc", "ab"));
  EXPECT_FALSE(SameProof("", "a"));
}

TEST(NodeId, IsShortAndPlain) {
  for (const char* id : {"node-1", "a", "N_1.x"}) EXPECT_TRUE(IsNodeId(id)) << id;
  for (const char* id : {"", "-a", ".a", "a b", "a/b", "\xff"}) EXPECT_FALSE(IsNodeId(id)) << id;
  EXPECT_FALSE(IsNodeId(std::string(kNodeIdBytesMax + 1, 'a')));
}

TEST(ValidateRegister, NamesTheBadField) {
  EXPECT_TRUE(ValidateRegister(Request()).ok());
  auto message = [](auto change) {
    RegisterRequest request = Request();
    change(request);
    return std::string(ValidateRegister(request).message());
  };
  EXPECT_THAT(message([](auto& r) { r.node_id = "a b"; }), testing::HasSubstr("node_id"));
  EXPECT_THAT(message([](auto& r) { r.boot_nonce = 0; }), testing::HasSubstr("boot_nonce"));
  EXPECT_THAT(message([](auto& r) { r.weight = -1; }), testing::HasSubstr("weight"));
  EXPECT_THAT(message([](auto& r) { r.weight = 0.0 / 0.0; }), testing::HasSubstr("weight"));
  EXPECT_THAT(message([](auto& r) { r.weight = 1e300; }), testing::HasSubstr("weight"));
  EXPECT_THAT(message([](auto& r) { r.shards.clear(); }), testing::HasSubstr("shards"));
  EXPECT_THAT(message([](auto& r) { r.shards.resize(kShardsPerNodeMax + 1, r.shards[0]); }),
              testing::HasSubstr("shards"));
  EXPECT_THAT(message([](auto& r) { r.shards[1] = {}; }), testing::HasSubstr("no path"));
  EXPECT_THAT(message([](auto& r) { r.shards[1].tcp = "nowhere"; }), testing::HasSubstr("tcp"));
  EXPECT_THAT(message([](auto& r) { r.shards[1].unix_name = std::string(108, 'x'); }),
              testing::HasSubstr("unix_name"));
  EXPECT_THAT(message([](auto& r) { r.shards[1].fabric = std::string(257, 'x'); }),
              testing::HasSubstr("fabric"));
}

TEST(Backoff, DoublesUpToItsMaximumWithJitterAndStartsAgain) {
  Backoff backoff(100, 1600, 42);
  for (const Nanos whole : {100, 200, 400, 800, 1600, 1600, 1600}) {
    const Nanos wait = backoff.Next();
    EXPECT_GE(wait, whole / 2);
    EXPECT_LE(wait, whole);
  }
  backoff.Reset();
  EXPECT_LE(backoff.Next(), 100);
}

TEST(Backoff, DiffersBetweenPeers) {
  Backoff a(kSecond, kSecond, 1);
  Backoff b(kSecond, kSecond, 2);
  EXPECT_NE(a.Next(), b.Next());
}

}  // namespace
}  // namespace cistern
