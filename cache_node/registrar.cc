#include "cache_node/registrar.h"

#include <atomic>
#include <random>
#include <thread>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/check.h"
#include "core/random.h"
#include "core/status_macros.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/convert.h"
#include "proto/convert_control.h"
#include "proto/grpc_util.h"

namespace cistern {
namespace {

uint64_t DrawNonce() {
  std::random_device device;
  const uint64_t drawn = uint64_t{device()} << 32 | device();
  return drawn != 0 ? drawn : 1;
}

}  // namespace

struct Registrar::Impl {
  Impl(RegistrarOptions o, RegistrarCallbacks c)
      : options(std::move(o)),
        callbacks(std::move(c)),
        random(options.boot_nonce),
        backoff(options.backoff_min, options.backoff_max, random.Next()) {}

  void Run();
  // One registration; the status of the attempt. Sets `current`.
  absl::Status Register();
  absl::Status Heartbeat();
  void TakeMap(const proto::ClusterMap& wire);
  bool IsFinal(const absl::Status& status) const;
  void SetError(const absl::Status& status);
  void TellTrouble(const absl::Status& status);
  proto::Cluster::Stub& Stub();

  RegistrarOptions options;
  const RegistrarCallbacks callbacks;

  // Registrar's thread only.
  Random random;
  Backoff backoff;
  std::unique_ptr<proto::Cluster::Stub> stub;
  std::optional<Registration> current;  // What the router last gave; kept while it has to be asked again.
  bool registered = false;
  uint64_t known_epoch = 0;
  BootClock clock;
  absl::Status told;  // The last that on_trouble heard.
  Nanos tell_at = 0;  // Not sooner.

  CallGuard guard;
  std::atomic<uint64_t> heartbeats_ok{0};
  std::atomic<uint64_t> registrations{0};
  mutable absl::Mutex mutex;
  absl::Status error ABSL_GUARDED_BY(mutex);
  bool refused ABSL_GUARDED_BY(mutex) = false;
  std::optional<Registration> shown ABSL_GUARDED_BY(mutex);
  std::thread thread;  // Last: joined before the rest goes.
};

proto::Cluster::Stub& Registrar::Impl::Stub() {
  if (!stub) stub = proto::Cluster::NewStub(MakeControlChannel(options.router, 2 * options.rpc_deadline));
  return *stub;
}

void Registrar::Impl::SetError(const absl::Status& status) {
  const absl::MutexLock lock(&mutex);
  error = status;
}

void Registrar::Impl::TellTrouble(const absl::Status& status) {
  if (!callbacks.on_trouble || status == told || (!status.ok() && clock.Now() < tell_at)) return;
  tell_at = clock.Now() + options.trouble_say_every;
  told = status;
  callbacks.on_trouble(status);
}

bool Registrar::Impl::IsFinal(const absl::Status& status) const {
  if (absl::IsAborted(status)) return true;
  if (current) return false;
  return absl::IsPermissionDenied(status) || absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status);
}

void Registrar::Impl::TakeMap(const proto::ClusterMap& wire) {
  absl::StatusOr<ClusterMap> map = FromWire(wire);
  if (!map.ok()) {
    SetError(map.status());
    return;
  }
  if (map->epoch == known_epoch) return;
  known_epoch = map->epoch;
  if (callbacks.on_map) callbacks.on_map(*map);
}

absl::Status Registrar::Impl::Register() {
  RegisterRequest request;
  request.node_id = options.node_id;
  request.cluster = options.expected_cluster;
  request.boot_nonce = options.boot_nonce;
  request.weight = options.weight;
  request.shards = options.shards;
  request.ram_bytes = options.ram_bytes;
  request.place = options.place;
  request.held_incarnation = current ? current->incarnation : 0;
  request.proof = RegisterProof(options.key, request);
  CISTERN_RETURN_IF_ERROR(ValidateRegister(request));

  proto::RegisterNodeReply reply;
  {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(options.rpc_deadline));
    const CallGuard::Scope scope(guard, context);
    CISTERN_RETURN_IF_ERROR(FromGrpc(Stub().RegisterNode(&context, ToWire(request), &reply)));
  }
  CISTERN_ASSIGN_OR_RETURN(const Registration registration, FromWire(reply));
  if (options.expected_cluster && *options.expected_cluster != registration.cluster) {
    return absl::FailedPreconditionError(
        absl::StrCat("the router at ", options.router, " is of cluster ", ToHex(registration.cluster), ", ",
                     options.node_id, " of ", ToHex(*options.expected_cluster),
                     "; give that cluster's --router, or another --data-dir"));
  }
  registered = true;
  options.expected_cluster = registration.cluster;
  ++registrations;
  if (current != registration) {
    current = registration;
    if (callbacks.on_registered) callbacks.on_registered(registration);
    const absl::MutexLock lock(&mutex);
    shown = registration;
  }
  known_epoch = 0;  // Another router may count epochs anew.
  if (reply.has_map()) TakeMap(reply.map());
  return absl::OkStatus();
}

absl::Status Registrar::Impl::Heartbeat() {
  NodeReport report = callbacks.report();
  HeartbeatRequest request;
  request.node_id = options.node_id;
  request.incarnation = current->incarnation;
  request.known_epoch = known_epoch;
  request.shard_last_poll_ms_ago = std::move(report.shard_last_poll_ms_ago);
  if (request.shard_last_poll_ms_ago.size() > kShardsPerNodeMax)
    request.shard_last_poll_ms_ago.resize(kShardsPerNodeMax);
  request.stats = std::move(report.stats);
  request.proof = HeartbeatProof(options.key, request.node_id, request.incarnation);

  proto::HeartbeatReply reply;
  {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(options.rpc_deadline));
    const CallGuard::Scope scope(guard, context);
    CISTERN_RETURN_IF_ERROR(FromGrpc(Stub().Heartbeat(&context, ToWire(request), &reply)));
  }
  if (!reply.known()) {
    registered = false;  // The loop registers again at once.
    return absl::OkStatus();
  }
  ++heartbeats_ok;
  if (reply.has_map()) TakeMap(reply.map());
  return absl::OkStatus();
}

void Registrar::Impl::Run() {
  while (!guard.stopped()) {
    const absl::Status status = registered ? Heartbeat() : Register();
    if (guard.stopped()) return;
    SetError(status);
    if (!status.ok()) {
      if (IsFinal(status)) {
        {
          const absl::MutexLock lock(&mutex);
          refused = true;
        }
        if (callbacks.on_refused) callbacks.on_refused(status);
        return;
      }
      // A router that no longer takes the proof may be another one: registering tells.
      const bool asks_again = registered && absl::IsPermissionDenied(status);
      if (asks_again) registered = false;
      if (!asks_again) TellTrouble(status);
      stub.reset();  // The next attempt connects anew: one connection an attempt, none in between.
      if (!guard.WaitFor(backoff.Next())) return;
      continue;
    }
    backoff.Reset();
    if (!registered) continue;
    TellTrouble(status);
    // Up to a tenth earlier, so that many nodes do not beat in step.
    const Nanos interval = Nanos{current->heartbeat_ms} * kMillisecond;
    if (!guard.WaitFor(interval - static_cast<Nanos>(random.Below(static_cast<uint64_t>(interval / 10)))))
      return;
  }
}

Registrar::Registrar(RegistrarOptions options, RegistrarCallbacks callbacks) {
  CISTERN_CHECK(callbacks.report);
  if (options.boot_nonce == 0) options.boot_nonce = DrawNonce();
  impl_ = std::make_unique<Impl>(std::move(options), std::move(callbacks));
}

Registrar::~Registrar() { Stop(); }

void Registrar::Start() {
  CISTERN_CHECK(!impl_->thread.joinable());
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

void Registrar::Stop() {
  impl_->guard.Stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

absl::StatusOr<Registration> Registrar::WaitRegistered(Nanos timeout) {
  Impl& impl = *impl_;
  const absl::MutexLock lock(&impl.mutex);
  const auto settled = [&impl]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(impl.mutex) {
    return impl.refused || impl.shown.has_value();
  };
  impl.mutex.AwaitWithTimeout(absl::Condition(&settled), absl::Nanoseconds(timeout));
  if (impl.refused) return impl.error;
  if (impl.shown) return *impl.shown;
  return absl::UnavailableError(absl::StrCat(
      "the router at ", impl.options.router,
      " does not answer: ", impl.error.ok() ? "no reply yet" : std::string(impl.error.message())));
}

absl::Status Registrar::last_error() const {
  const absl::MutexLock lock(&impl_->mutex);
  return impl_->error;
}
uint64_t Registrar::heartbeats_ok() const { return impl_->heartbeats_ok; }
uint64_t Registrar::registrations() const { return impl_->registrations; }

}  // namespace cistern
