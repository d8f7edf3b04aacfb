#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/control/router_link.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/convert.h"
#include "proto/convert_control.h"

// A router that answers late, or when nobody waits any more: what a link leaves behind when it goes.
namespace cistern {
namespace {

constexpr Nanos kPatience = 20 * kSecond;  // Only a broken build waits this long.

// Whether gRPC has threads for callbacks in this process: they run ours and then free our calls, and nobody
// can wait for the end of that.
bool HasCallbackThreads() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name == "nexting_thread") return true;
  }
  return false;
}

// Gives a map and a ticket; everything else waits until the router lets go.
class LateRouter final : public proto::Cluster::Service {
 public:
  LateRouter() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~LateRouter() override {
    LetGo();
    server_->Shutdown();
  }
  const std::string& address() const { return address_; }
  void LetGo() {
    if (!let_go_.HasBeenNotified()) let_go_.Notify();
  }
  bool WaitForReport() { return report_came_.WaitForNotificationWithTimeout(absl::Nanoseconds(kPatience)); }

  grpc::Status GetTicket(grpc::ServerContext*, const proto::GetTicketRequest*,
                         proto::GetTicketReply* reply) override {
    TicketGrant grant;
    grant.sealed = "ticket";
    grant.expires_unix_s = int64_t{4'000'000'000};
    *reply = ToWire(grant);
    return grpc::Status::OK;
  }
  grpc::Status WatchMap(grpc::ServerContext*, const proto::WatchMapRequest*,
                        grpc::ServerWriter<proto::ClusterMap>* writer) override {
    ClusterMap map;
    map.epoch = 1;
    writer->Write(ToWire(map));
    let_go_.WaitForNotification();
    return grpc::Status::OK;
  }
  grpc::Status GetStatus(grpc::ServerContext*, const proto::GetStatusRequest*,
                         proto::GetStatusReply*) override {
    let_go_.WaitForNotification();
    return grpc::Status::OK;
  }
  grpc::Status ReportPeersGone(grpc::ServerContext*, const proto::ReportPeersGoneRequest*,
                               proto::ReportPeersGoneReply*) override {
    if (!report_came_.HasBeenNotified()) report_came_.Notify();
    let_go_.WaitForNotification();
    return grpc::Status::OK;
  }

 private:
  absl::Notification let_go_;
  absl::Notification report_came_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

RouterLinkOptions Options(const LateRouter& router) {
  RouterLinkOptions options;
  options.router = router.address();
  options.rpc_deadline = kPatience;
  options.seed = 5;
  return options;
}

TEST(LateRouter, ALinkThatGoesTakesItsUnansweredReportAlong) {
  BootClock clock;
  LateRouter router;
  Nanos begin = 0;
  {
    RouterLink link(Options(router), {});
    ASSERT_TRUE(link.WaitReady(kPatience).ok());
    link.ReportGone({{"node-1", 7}});
    ASSERT_TRUE(router.WaitForReport());
    link.ReportGone({{"node-2", 7}});  // Waits behind the first, for ever.
    EXPECT_FALSE(HasCallbackThreads()) << "a thread of gRPC's has the report in its hands";
    begin = clock.Now();
  }
  EXPECT_LT(clock.Now() - begin, kPatience / 2) << "it waited for the answer";
}

TEST(LateRouter, ThreadsOfCallbacksWouldBeSeen) {
  LateRouter router;
  router.LetGo();
  const auto channel = grpc::CreateChannel(router.address(), grpc::InsecureChannelCredentials());
  const auto stub = proto::Cluster::NewStub(channel);
  grpc::ClientContext context;
  const proto::GetStatusRequest request;
  proto::GetStatusReply reply;
  absl::Notification done;
  stub->async()->GetStatus(&context, &request, &reply, [&done](const grpc::Status&) { done.Notify(); });
  done.WaitForNotification();
  EXPECT_TRUE(HasCallbackThreads());
}

TEST(LateRouter, AStatusThatComesAfterItsDeadlineIsNobodysBusiness) {
  LateRouter router;
  {
    RouterLink link(Options(router), {});
    ASSERT_TRUE(link.WaitReady(kPatience).ok());
    EXPECT_EQ(link.GetStatus(20 * kMillisecond).status().code(), absl::StatusCode::kUnavailable);
    router.LetGo();
  }
  EXPECT_EQ(FetchClusterStatus("127.0.0.1:1", kSecond).status().code(), absl::StatusCode::kUnavailable);
}

// gRPC taken down by a thread of its own, while the process exits, is what ended `cistern status` by SIGSEGV.
TEST(LateRouter, GrpcStaysUpUntilTheProcessEnds) {
  {
    LateRouter router;
    RouterLink link(Options(router), {});
    ASSERT_TRUE(link.WaitReady(kPatience).ok());
  }
  BootClock clock;
  for (const Nanos end = clock.Now() + kSecond / 2; clock.Now() < end && grpc_is_initialized() != 0;) {
  }
  EXPECT_NE(grpc_is_initialized(), 0);
}

}  // namespace
}  // namespace cistern
