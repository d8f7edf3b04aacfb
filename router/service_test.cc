#include "router/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/convert.h"
#include "proto/convert_control.h"
#include "proto/grpc_util.h"
#include "router/service_fixture.h"

namespace cistern {
namespace {

using testing::HasSubstr;

// Speaks to the service as any gRPC client could: also with what no client of ours would send.
class ServiceTest : public ServiceFixture {
 protected:
  void SetUp() override { StartRouter(); }
  std::unique_ptr<proto::Cluster::Stub> Stub() {
    return proto::Cluster::NewStub(MakeControlChannel(address(), kTestPatience));
  }

  RegisterRequest Request(const std::string& id, uint64_t nonce) {
    RegisterRequest request;
    request.node_id = id;
    request.boot_nonce = nonce;
    request.ram_bytes = uint64_t{2} << 30;
    request.shards = {{"127.0.0.1:4000", "", ""}};
    request.place = "boot/" + id;
    request.proof = RegisterProof(key_, request);
    return request;
  }
  grpc::Status Register(const RegisterRequest& request, proto::RegisterNodeReply& reply) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(kTestPatience));
    return Stub()->RegisterNode(&context, ToWire(request), &reply);
  }
  uint64_t MustRegister(const std::string& id, uint64_t nonce) {
    proto::RegisterNodeReply reply;
    const grpc::Status status = Register(Request(id, nonce), reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.incarnation();
  }
};

TEST_F(ServiceTest, RegistersANodeAndTellsTheMap) {
  proto::RegisterNodeReply reply;
  ASSERT_TRUE(Register(Request("node-1", 5), reply).ok());
  const Registration registration = FromWire(reply).value();
  EXPECT_EQ(registration.cluster, cluster_);
  EXPECT_EQ(registration.heartbeat_ms, kHeartbeatMs);
  const ClusterMap map = FromWire(reply.map()).value();
  ASSERT_EQ(map.nodes.size(), 1u);
  EXPECT_EQ(map.nodes[0].id, "node-1");
  EXPECT_DOUBLE_EQ(map.nodes[0].weight, 2);
}

TEST_F(ServiceTest, RefusesBadProofOtherClusterAndBrokenMessages) {
  proto::RegisterNodeReply reply;
  RegisterRequest request = Request("node-1", 5);
  request.proof[0] = static_cast<char>(request.proof[0] ^ 1);
  EXPECT_EQ(Register(request, reply).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  request = Request("node-1", 5);
  request.cluster = ClusterId{};
  request.proof = RegisterProof(key_, request);
  const grpc::Status other = Register(request, reply);
  EXPECT_EQ(other.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(other.error_message(), HasSubstr(ToHex(cluster_)));
  request = Request("node-1", 5);
  request.shards[0].tcp = "nowhere";
  EXPECT_EQ(Register(request, reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, HeartbeatBringsTheMapOnlyWhenItIsNew) {
  const uint64_t incarnation = MustRegister("node-1", 5);
  HeartbeatRequest request;
  request.node_id = "node-1";
  request.incarnation = incarnation;
  request.stats.hit_blocks = 12;
  request.proof = HeartbeatProof(key_, "node-1", incarnation);
  const auto stub = Stub();
  auto beat = [&](const proto::HeartbeatRequest& wire) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(kTestPatience));
    proto::HeartbeatReply reply;
    const grpc::Status status = stub->Heartbeat(&context, wire, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  };
  proto::HeartbeatReply reply = beat(ToWire(request));
  EXPECT_TRUE(reply.known());
  ASSERT_TRUE(reply.has_map());
  request.known_epoch = reply.epoch();
  EXPECT_FALSE(beat(ToWire(request)).has_map());
  proto::HeartbeatRequest bad_stats = ToWire(request);
  bad_stats.mutable_stats()->set_cpu_seconds(-1);
  EXPECT_TRUE(beat(bad_stats).known());  // Bad figures do not make a living node dead.
  const ClusterStatus status = [&] {
    grpc::ClientContext context;
    proto::GetStatusReply status_reply;
    EXPECT_TRUE(stub->GetStatus(&context, {}, &status_reply).ok());
    return FromWire(status_reply).value();
  }();
  EXPECT_EQ(status.counters.at("heartbeat_stats_refused_total"), 1u);
  EXPECT_EQ(status.address, address());
}

TEST_F(ServiceTest, IssuesTicketsForTheDefaultTenantOnly) {
  const auto stub = Stub();
  {
    grpc::ClientContext context;
    proto::GetTicketReply reply;
    ASSERT_TRUE(stub->GetTicket(&context, {}, &reply).ok());
    const TicketGrant grant = FromWire(reply).value();
    EXPECT_EQ(grant.cluster, cluster_);
    EXPECT_TRUE(OpenTicket(grant.sealed, key_, cluster_, grant.expires_unix_s - 1).ok());
  }
  grpc::ClientContext context;
  proto::GetTicketRequest request;
  request.set_tenant("nobody");
  proto::GetTicketReply reply;
  EXPECT_EQ(stub->GetTicket(&context, request, &reply).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServiceTest, AWatchBringsTheMapAtOnceAndEachNewOne) {
  const auto stub = Stub();
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kTestPatience));
  const auto reader = stub->WatchMap(&context, {});
  proto::ClusterMap map;
  ASSERT_TRUE(reader->Read(&map));
  const uint64_t first = map.epoch();
  EXPECT_EQ(map.nodes_size(), 0);
  MustRegister("node-1", 5);
  ASSERT_TRUE(reader->Read(&map));
  EXPECT_GT(map.epoch(), first);
  ASSERT_EQ(map.nodes_size(), 1);
  service_->Stop();
  EXPECT_FALSE(reader->Read(&map));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServiceTest, AWatchWithTheKnownEpochGetsKeepAliveCopies) {
  StopRouter();
  ServiceOptions options;
  options.watch_keep_alive = 10 * kMillisecond;
  StartRouter(options);
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kTestPatience));
  proto::WatchMapRequest request;
  request.set_known_epoch(1);
  const auto stub = Stub();
  const auto reader = stub->WatchMap(&context, request);
  proto::ClusterMap map;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(reader->Read(&map));
    EXPECT_EQ(map.epoch(), 1u);
  }
}

TEST_F(ServiceTest, TooManyWatchersAreRefusedAndALeavingOneMakesRoom) {
  StopRouter();
  ServiceOptions options;
  options.watchers_max = 2;
  StartRouter(options);
  const auto stub = Stub();
  proto::ClusterMap map;
  grpc::ClientContext first_context;
  const auto first = stub->WatchMap(&first_context, {});
  ASSERT_TRUE(first->Read(&map));
  {
    grpc::ClientContext second_context;
    const auto second = stub->WatchMap(&second_context, {});
    ASSERT_TRUE(second->Read(&map));
    grpc::ClientContext third_context;
    const auto third = stub->WatchMap(&third_context, {});
    EXPECT_FALSE(third->Read(&map));
    EXPECT_EQ(third->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    second_context.TryCancel();
    while (second->Read(&map)) {
    }
    second->Finish();
  }
  // The server hears of the cancellation a little later.
  const Nanos until = clock_.Now() + kTestPatience;
  bool taken = false;
  while (!taken && clock_.Now() < until) {
    grpc::ClientContext context;
    const auto again = stub->WatchMap(&context, {});
    taken = again->Read(&map);
    context.TryCancel();
    while (again->Read(&map)) {
    }
    again->Finish();
  }
  EXPECT_TRUE(taken);
}

// Readers that open a watch and never read from it.
class Deaf final : public grpc::ClientReadReactor<proto::ClusterMap> {
 public:
  Deaf(proto::Cluster::Stub& stub, Watched<int>& ended) : ended_(ended) {
    stub.async()->WatchMap(&context_, &request_, this);
    StartCall();
  }
  void OnDone(const grpc::Status& status) override {
    ended_.Change([&](int& n) { n += status.error_code() == grpc::StatusCode::OK ? 0 : 1; });
  }
  void Cancel() { context_.TryCancel(); }

 private:
  Watched<int>& ended_;
  grpc::ClientContext context_;
  proto::WatchMapRequest request_;
};

TEST_F(ServiceTest, S04_WatchersThatNeverReadAreCutOffAndDelayNobody) {
  StopRouter();
  ServiceOptions options;
  options.watch_slow_max = 300 * kMillisecond;
  StartRouter(options);
  constexpr int kDeaf = 100;
  const auto deaf_stub = Stub();
  Watched<int> ended;
  std::vector<std::unique_ptr<Deaf>> deaf;
  for (int i = 0; i < kDeaf; ++i) deaf.push_back(std::make_unique<Deaf>(*deaf_stub, ended));
  // Big maps, so that transport buffers fill up: each change sends every watcher some hundred KiB more.
  const auto stub = Stub();
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(4 * kTestPatience));
  const auto reader = stub->WatchMap(&context, {});
  proto::ClusterMap map;
  ASSERT_TRUE(reader->Read(&map));
  uint64_t nonce = 1;
  const Nanos until = clock_.Now() + 3 * kTestPatience;
  while (service_->watchers_cut_off() < kDeaf && clock_.Now() < until) {
    RegisterRequest request = Request(absl::StrCat("node-", nonce % 40), nonce);
    request.shards.assign(kShardsPerNodeMax, {"127.0.0.1:4000", std::string(100, 'u'), ""});
    request.proof = RegisterProof(key_, request);
    ++nonce;
    proto::RegisterNodeReply reply;
    ASSERT_TRUE(Register(request, reply).ok());
    // The reader that reads sees this change or a later one.
    do {
      ASSERT_TRUE(reader->Read(&map));
    } while (map.epoch() < reply.map().epoch());
  }
  EXPECT_EQ(service_->watchers_cut_off(), uint64_t{kDeaf});
  for (const auto& one : deaf) one->Cancel();
  EXPECT_TRUE(ended.WaitUntil([](int n) { return n == kDeaf; }));
  context.TryCancel();
  while (reader->Read(&map)) {
  }
  reader->Finish();
}

TEST_F(ServiceTest, ATakenPortIsOneClearLine) {
  ServiceOptions options;
  options.listen = address();
  MemoryStateStore store;
  const absl::Status status =
      RouterService::Start(options, Router::Create({}, key_, store, clock_, random_).value(), clock_)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(absl::StrCat("cannot listen on ", address(), ": Address already in use; give --listen")));
  options.listen = "nonsense";
  EXPECT_EQ(RouterService::Start(options, Router::Create({}, key_, store, clock_, random_).value(), clock_)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cistern
