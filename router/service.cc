#include "router/service.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <utility>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/control.h"
#include "proto/convert.h"
#include "proto/convert_control.h"
#include "proto/grpc_util.h"
#include "router/router_host.h"
#include "router/watch_hub.h"

namespace cistern {
namespace {

constexpr int kStreamsPerConnectionMax = 128;
constexpr int kRequestBytesMax = 1 << 20;  // A heartbeat with every figure is far below.

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class ClusterHandlers final : public proto::Cluster::CallbackService {
 public:
  ClusterHandlers(RouterHost& host, WatchHub& hub) : host_(host), hub_(hub) {}

  grpc::ServerUnaryReactor* RegisterNode(grpc::CallbackServerContext* context,
                                         const proto::RegisterNodeRequest* wire,
                                         proto::RegisterNodeReply* reply) override {
    absl::StatusOr<RegisterRequest> request = FromWire(*wire);
    if (!request.ok()) return Refuse(*context, request.status());
    return Run(*context, [request = *std::move(request), reply](Router& router) {
      const absl::StatusOr<Registration> registration = router.Register(request);
      if (!registration.ok()) return registration.status();
      reply->set_cluster(registration->cluster.bytes.data(), registration->cluster.bytes.size());
      reply->set_incarnation(registration->incarnation);
      reply->set_heartbeat_ms(registration->heartbeat_ms);
      *reply->mutable_map() = ToWire(router.map());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const proto::HeartbeatRequest* wire,
                                      proto::HeartbeatReply* reply) override {
    bool stats_refused = false;
    absl::StatusOr<HeartbeatRequest> request = FromWire(*wire, stats_refused);
    if (!request.ok()) return Refuse(*context, request.status());
    return Run(*context, [request = *std::move(request), stats_refused, reply](Router& router) {
      const absl::StatusOr<HeartbeatResult> result = router.Heartbeat(request);
      if (!result.ok()) return result.status();
      if (stats_refused) router.Count("heartbeat_stats_refused_total");
      reply->set_known(result->known);
      reply->set_epoch(result->epoch);
      if (result->known && request.known_epoch != result->epoch) *reply->mutable_map() = ToWire(router.map());
      return absl::OkStatus();
    });
  }

  grpc::ServerWriteReactor<proto::ClusterMap>* WatchMap(grpc::CallbackServerContext* context,
                                                        const proto::WatchMapRequest* request) override {
    // A lost post only costs open moves for a client that cannot hold a ticket of this router yet.
    if (!host_.Post([](Router& router) { router.NoteClient(); })) context->TryCancel();
    return hub_.Open(*context, request->known_epoch());
  }

  grpc::ServerUnaryReactor* GetTicket(grpc::CallbackServerContext* context,
                                      const proto::GetTicketRequest* request,
                                      proto::GetTicketReply* reply) override {
    return Run(*context, [tenant = request->tenant(), rights = request->rights(), reply](Router& router) {
      const absl::StatusOr<TicketGrant> grant = router.IssueTicket(tenant, rights, UnixSeconds());
      if (!grant.ok()) return grant.status();
      *reply = ToWire(*grant);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ReportPeersGone(grpc::CallbackServerContext* context,
                                            const proto::ReportPeersGoneRequest* wire,
                                            proto::ReportPeersGoneReply* reply) override {
    absl::StatusOr<GoneReport> report = FromWire(*wire);
    if (!report.ok()) return Refuse(*context, report.status());
    return Run(*context, [report = *std::move(report), reply](Router& router) {
      const absl::StatusOr<uint32_t> silent = router.ReportPeersGone(report, UnixSeconds());
      if (!silent.ok()) return silent.status();
      reply->set_silent(*silent);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const proto::DrainNodeRequest* wire,
                                      proto::DrainNodeReply* reply) override {
    absl::StatusOr<DrainRequest> request = FromWire(*wire);
    if (!request.ok()) return Refuse(*context, request.status());
    return Run(*context, [request = *std::move(request), reply](Router& router) {
      const absl::StatusOr<DrainResult> result = router.Drain(request, UnixSeconds());
      if (!result.ok()) return result.status();
      reply->set_state(static_cast<proto::NodeState>(result->state));
      reply->set_epoch(result->epoch);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const proto::GetStatusRequest*,
                                      proto::GetStatusReply* reply) override {
    return Run(*context, [this, reply](Router& router) {
      *reply = ToWire(StatusOf(router));
      return absl::OkStatus();
    });
  }

  // On the router's thread.
  ClusterStatus StatusOf(Router& router) const {
    ClusterStatus status = router.Status();
    status.counters["watchers"] = hub_.watchers();
    status.counters["bad_requests_total"] = refused_.load(std::memory_order_relaxed);
    status.counters["watchers_cut_off_total"] = hub_.cut_off();
    return status;
  }

 private:
  grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext& context, const absl::Status& status) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

  // Finishes the call with what `task` says, on the router's thread.
  template <typename Task>
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext& context, Task task) {
    grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
    const bool posted = host_.Post(
        [reactor, task = std::move(task)](Router& router) { reactor->Finish(ToGrpc(task(router))); });
    if (!posted)
      reactor->Finish(ToGrpc(absl::ResourceExhaustedError("the router is overloaded or stopping")));
    return reactor;
  }

  RouterHost& host_;
  WatchHub& hub_;
  std::atomic<uint64_t> refused_{0};  // Requests that break a rule which needs no state.
};

// Why an address cannot be listened on; gRPC tells its log only.
std::string WhyNotListen(const HostPort& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return ::gai_strerror(error);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    const int fd = ::socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const bool fails = ::bind(fd, at->ai_addr, at->ai_addrlen) != 0 || ::listen(fd, 1) != 0;
    const int why = errno;
    ::close(fd);
    if (fails) return std::strerror(why);
  }
  return "gRPC could not bind it";
}

}  // namespace

struct RouterService::Impl {
  Impl(const ServiceOptions& options, std::unique_ptr<Router> router, Clock& clock)
      : hub({options.watchers_max, options.watch_keep_alive, options.watch_slow_max}, clock),
        host(std::move(router), clock),
        handlers(host, hub) {}

  WatchHub hub;
  RouterHost host;
  ClusterHandlers handlers;
  std::string address;
  std::unique_ptr<grpc::Server> server;  // Last: gone before what its handlers use.
};

RouterService::RouterService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RouterService::~RouterService() { Stop(); }

absl::StatusOr<std::unique_ptr<RouterService>> RouterService::Start(const ServiceOptions& options,
                                                                    std::unique_ptr<Router> router,
                                                                    Clock& clock) {
  const absl::StatusOr<HostPort> listen = ParseHostPort(options.listen, PortZero::kAnyFree);
  if (!listen.ok())
    return absl::InvalidArgumentError(absl::StrCat("listen address ", listen.status().message()));
  auto impl = std::make_unique<Impl>(options, std::move(router), clock);
  WatchHub& hub = impl->hub;
  impl->host.Start({.on_map =
                        [&hub, on_map = options.on_map](const ClusterMap& map) {
                          if (on_map) on_map(map);
                          hub.Publish(std::make_shared<const proto::ClusterMap>(ToWire(map)));
                        },
                    .on_turn = [&hub] { hub.Turn(); }});
  KeepGrpc();
  grpc::ServerBuilder builder;
  int port = 0;
  // Without this two routers could share one port, and each would see half of the nodes.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  // Clients ping to find a stopped router; the router pings to find stopped watchers.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.SetMaxReceiveMessageSize(kRequestBytesMax);
  builder.SetMaxSendMessageSize(kControlMessageBytesMax);
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&impl->handlers);
  impl->server = builder.BuildAndStart();
  if (!impl->server || port <= 0) {
    impl->server.reset();
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen, ": ",
                                               WhyNotListen(*listen),
                                               "; give --listen an address of this host and a free port"));
  }
  impl->address = HostPort{listen->host, static_cast<uint16_t>(port)}.ToString();
  if (!impl->host.Post([address = impl->address](Router& at) { at.SetAddress(address); })) {
    return absl::InternalError("the router's mailbox is full at its start");
  }
  return std::unique_ptr<RouterService>(new RouterService(std::move(impl)));
}

void RouterService::Stop() {
  if (!impl_ || !impl_->server) return;
  impl_->hub.Close();
  impl_->server->Shutdown(
      GrpcDeadline(kSecond));  // Waits for handlers; the router's thread still answers them.
  impl_->host.Stop();
  impl_->server.reset();
}

absl::StatusOr<ClusterStatus> RouterService::Status(Nanos patience) {
  const auto answer = std::make_shared<std::promise<ClusterStatus>>();  // Ours, and the task's if it is late.
  std::future<ClusterStatus> status = answer->get_future();
  const bool posted = impl_->host.Post([answer, &handlers = impl_->handlers](Router& router) {
    answer->set_value(handlers.StatusOf(router));
  });
  if (!posted || status.wait_for(std::chrono::nanoseconds(patience)) != std::future_status::ready)
    return absl::UnavailableError("the router is overloaded or stopping");
  return status.get();
}

const std::string& RouterService::address() const { return impl_->address; }
size_t RouterService::watchers() const { return impl_->hub.watchers(); }
uint64_t RouterService::watchers_cut_off() const { return impl_->hub.cut_off(); }

}  // namespace cistern
