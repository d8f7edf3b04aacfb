#include "client/control/gone_reporter.h"

#include <algorithm>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/convert_control.h"
#include "proto/grpc_util.h"

namespace cistern {
namespace {

// One report. It holds the connection, by its stub and by its context, and whoever drops the last hold joins
// gRPC's threads: so none of those may destroy a call.
struct Call {
  std::shared_ptr<proto::Cluster::Stub> stub;  // Two owners: the link's session and the call.
  grpc::ClientContext context;
  proto::ReportPeersGoneRequest request;
  proto::ReportPeersGoneReply reply;
};

}  // namespace

struct GoneReporter::Impl {
  explicit Impl(Nanos deadline) : rpc_deadline(deadline) {}
  // Takes what waits into a call, if one may begin now.
  Call* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return call == nullptr && beginning == 0; }
  void Begin(Call* next);  // Null: nothing to do.
  void Done(const grpc::Status& status);
  // What may be destroyed now, outside of the lock and of gRPC's threads.
  std::vector<std::unique_ptr<Call>> TakeEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const Nanos rpc_deadline;
  mutable absl::Mutex mutex;
  bool closing ABSL_GUARDED_BY(mutex) = false;
  std::shared_ptr<proto::Cluster::Stub> stub ABSL_GUARDED_BY(mutex);
  std::string ticket ABSL_GUARDED_BY(mutex);
  std::vector<GonePeer> waiting ABSL_GUARDED_BY(mutex);  // kGonePeersMax at most.
  std::unique_ptr<Call> call ABSL_GUARDED_BY(mutex);
  uint32_t beginning ABSL_GUARDED_BY(mutex) = 0;  // Begins that have not returned.
  // Left here by gRPC's threads, destroyed by others; each Report adds one at most and takes what is there.
  std::vector<std::unique_ptr<Call>> ended ABSL_GUARDED_BY(mutex);
  uint64_t reported ABSL_GUARDED_BY(mutex) = 0;
  uint64_t dropped ABSL_GUARDED_BY(mutex) = 0;
};

Call* GoneReporter::Impl::Next() {
  if (call != nullptr || waiting.empty()) return nullptr;
  if (stub == nullptr || closing) {
    dropped += waiting.size();
    waiting.clear();
    return nullptr;
  }
  call = std::make_unique<Call>();
  call->stub = stub;
  call->request = ToWire(GoneReport{ticket, std::exchange(waiting, {})});
  call->context.set_deadline(GrpcDeadline(rpc_deadline));
  ++beginning;
  return call.get();
}

// Without the lock: gRPC may run the callback before the function that begins the call has returned. The call
// outlives it in `call` or `ended`, which nobody empties while a begin is under way.
void GoneReporter::Impl::Begin(Call* next) {
  if (next == nullptr) return;
  next->stub->async()->ReportPeersGone(&next->context, &next->request, &next->reply,
                                       [this](const grpc::Status& status) { Done(status); });
  const absl::MutexLock lock(&mutex);
  --beginning;
}

void GoneReporter::Impl::Done(const grpc::Status& status) {
  Call* next = nullptr;
  {
    const absl::MutexLock lock(&mutex);
    (status.ok() ? reported : dropped) += static_cast<uint64_t>(call->request.peers_size());
    ended.push_back(std::move(call));
    next = Next();
  }
  Begin(next);
}

std::vector<std::unique_ptr<Call>> GoneReporter::Impl::TakeEnded() {
  std::vector<std::unique_ptr<Call>> taken;
  if (beginning == 0) taken.swap(ended);
  return taken;
}

GoneReporter::GoneReporter(Nanos rpc_deadline) : impl_(std::make_unique<Impl>(rpc_deadline)) {}

GoneReporter::~GoneReporter() {
  const absl::MutexLock lock(&impl_->mutex);
  impl_->closing = true;
  if (impl_->call != nullptr) impl_->call->context.TryCancel();
  impl_->mutex.Await(absl::Condition(impl_.get(), &Impl::IsIdle));
}

void GoneReporter::SetStub(std::shared_ptr<proto::Cluster::Stub> stub) {
  std::vector<std::unique_ptr<Call>> ended;  // Goes after the lock, as what `stub` held.
  const absl::MutexLock lock(&impl_->mutex);
  ended = impl_->TakeEnded();
  impl_->stub.swap(stub);
}

void GoneReporter::Report(const std::string& ticket, const std::vector<GonePeer>& peers) {
  Impl& impl = *impl_;
  Call* next = nullptr;
  std::vector<std::unique_ptr<Call>> ended;
  {
    const absl::MutexLock lock(&impl.mutex);
    ended = impl.TakeEnded();
    impl.ticket = ticket;
    for (const GonePeer& peer : peers) {
      if (std::find(impl.waiting.begin(), impl.waiting.end(), peer) != impl.waiting.end()) continue;
      if (impl.waiting.size() == kGonePeersMax) {
        ++impl.dropped;
        continue;
      }
      impl.waiting.push_back(peer);
    }
    next = impl.Next();
  }
  impl.Begin(next);
}

uint64_t GoneReporter::reported() const {
  const absl::MutexLock lock(&impl_->mutex);
  return impl_->reported;
}
uint64_t GoneReporter::dropped() const {
  const absl::MutexLock lock(&impl_->mutex);
  return impl_->dropped;
}

}  // namespace cistern
