#include <cstdlib>

#include <gtest/gtest.h>

#include <google/protobuf/stubs/logging.h>

#include "absl/strings/str_cat.h"
#include "core/random.h"
#include "proto/convert.h"
#include "proto/convert_control.h"

// Mutates good messages, and makes up bad ones; whatever FromWire accepts must go round unchanged, and
// nothing may crash. CISTERN_FUZZ_SEED and CISTERN_FUZZ_ROUNDS repeat or lengthen a run.
namespace cistern {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

std::string Mutate(std::string bytes, Random& random) {
  for (uint64_t i = 0, n = 1 + random.Below(4); i < n; ++i) {
    const uint64_t at = bytes.empty() ? 0 : random.Below(bytes.size());
    switch (random.Below(5)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random.Next());
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Below(8)));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(at, 1, static_cast<char>(random.Next()));
        break;
      default:
        bytes.append(bytes.substr(at, random.Below(64)));
    }
  }
  return bytes;
}

ClusterMap SomeMap(Random& random) {
  ClusterMap map;
  for (uint8_t& byte : map.cluster.bytes) byte = static_cast<uint8_t>(random.Next());
  map.epoch = 3 + random.Below(1000);
  map.run_blocks_cap = 1u << random.Below(8);
  for (uint64_t i = 0, n = random.Below(5); i < n; ++i) {
    map.nodes.push_back({absl::StrCat("node-", i),
                         1 + random.Below(9),
                         static_cast<NodeState>(random.Below(4)),
                         0.5 + random.Unit(),
                         {{absl::StrCat("127.0.0.1:", 1 + random.Below(65535)), "u", ""}}});
  }
  if (random.Chance(0.5)) map.open_moves.push_back({map.epoch - 1, {{"node-0", 1}, {"node-9", 2}}});
  return map;
}

template <typename Wire>
void RoundTrip(const std::string& bytes, uint64_t& accepted) {
  Wire wire;
  if (!wire.ParseFromString(bytes)) return;
  auto value = FromWire(wire);
  if (!value.ok()) return;
  ++accepted;
  auto again = FromWire(ToWire(*value));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToWire(*again).ByteSizeLong(), ToWire(*value).ByteSizeLong());
}

TEST(ConvertFuzz, NothingCrashesAndWhatIsAcceptedGoesRound) {
  const uint64_t seed = FromEnvironment("CISTERN_FUZZ_SEED", 1);
  const uint64_t rounds = FromEnvironment("CISTERN_FUZZ_ROUNDS", 20'000);
  SCOPED_TRACE(absl::StrCat("CISTERN_FUZZ_SEED=", seed));
  Random random(seed);
  const google::protobuf::LogSilencer silencer;  // Bad UTF-8 is what this test is made of.
  uint64_t accepted = 0;
  for (uint64_t i = 0; i < rounds; ++i) {
    NodeStats stats;
    stats.tiers = {{"ram", random.Next(), random.Next(), 1}};
    stats.counters = {{"a_total", random.Next()}};
    const ClusterMap map = SomeMap(random);
    ClusterStatus status;
    status.map = map;
    for (const NodeEntry& entry : map.nodes) status.nodes.push_back({entry, stats, 1, {}});
    RegisterRequest request;
    request.node_id = "node-1";
    request.boot_nonce = random.Next() | 1;
    request.shards = {{"127.0.0.1:1", "u", ""}};
    request.proof = std::string(32, 'p');
    RoundTrip<proto::ClusterMap>(Mutate(ToWire(map).SerializeAsString(), random), accepted);
    RoundTrip<proto::NodeStats>(Mutate(ToWire(stats).SerializeAsString(), random), accepted);
    RoundTrip<proto::GetStatusReply>(Mutate(ToWire(status).SerializeAsString(), random), accepted);
    RoundTrip<proto::RegisterNodeRequest>(Mutate(ToWire(request).SerializeAsString(), random), accepted);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(accepted, 0u);  // Else the mutations are too harsh to test anything.
}

}  // namespace
}  // namespace cistern
