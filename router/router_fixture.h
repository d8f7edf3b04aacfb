#pragma once

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "router/router.h"

namespace cistern {

// A router over memory and simulated time, and nodes that talk to it as a registrar would.
class RouterFixture : public testing::Test {
 protected:
  void SetUp() override { Restart(); }

  void Restart(RouterConfig config = {}) {
    router_.reset();
    absl::StatusOr<std::unique_ptr<Router>> router = Router::Create(config, key_, store_, clock_, random_);
    ASSERT_TRUE(router.ok()) << router.status();
    router_ = *std::move(router);
  }

  RegisterRequest Request(const std::string& id, uint64_t nonce) {
    RegisterRequest request;
    request.node_id = id;
    request.boot_nonce = nonce;
    request.ram_bytes = uint64_t{1} << 30;
    request.shards = {{"127.0.0.1:4000", "cistern-" + id, ""}};
    request.place = "boot/" + id;  // Always the same folder.
    return request;
  }
  absl::StatusOr<Registration> Register(RegisterRequest request) {
    request.proof = RegisterProof(key_, request);
    return router_->Register(request);
  }
  absl::StatusOr<Registration> Register(const std::string& id, uint64_t nonce) {
    return Register(Request(id, nonce));
  }

  HeartbeatResult Beat(const std::string& id, uint64_t incarnation, uint64_t hits = 0) {
    HeartbeatRequest request;
    request.node_id = id;
    request.incarnation = incarnation;
    request.stats.hit_blocks = hits;
    request.proof = HeartbeatProof(key_, id, incarnation);
    absl::StatusOr<HeartbeatResult> result = router_->Heartbeat(request);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : HeartbeatResult{};
  }

  // Time in small steps, as the router's thread would see it.
  void Pass(Nanos time) {
    for (const Nanos end = clock_.Now() + time; clock_.Now() < end;) {
      clock_.Advance(std::min(end - clock_.Now(), 100 * kMillisecond));
      router_->Tick();
    }
  }
  const NodeEntry& Node(const std::string& id) {
    for (const NodeEntry& node : router_->map().nodes) {
      if (node.id == id) return node;
    }
    static const NodeEntry kNone;
    ADD_FAILURE() << "no node " << id;
    return kNone;
  }
  uint64_t Counter(const std::string& name) { return router_->Status().counters[name]; }

  SimClock clock_;
  Random random_{42};
  const ClusterKey key_ = ClusterKey::Generate();
  MemoryStateStore store_;
  std::unique_ptr<Router> router_;
};

}  // namespace cistern
