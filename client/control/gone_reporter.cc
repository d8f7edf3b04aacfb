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

// One report, alive from its begin to the end of its callback.
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
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return call == nullptr; }
  void Begin(Call* next);  // Null: nothing to do.
  void Done(Call* ended, const grpc::Status& status);

  const Nanos rpc_deadline;
  mutable absl::Mutex mutex;
  bool closing ABSL_GUARDED_BY(mutex) = false;
  std::shared_ptr<proto::Cluster::Stub> stub ABSL_GUARDED_BY(mutex);
  std::string ticket ABSL_GUARDED_BY(mutex);
  std::vector<GonePeer> waiting ABSL_GUARDED_BY(mutex);  // kGonePeersMax at most.
  std::unique_ptr<Call> call ABSL_GUARDED_BY(mutex);
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
  return call.get();
}

// Without the lock: gRPC may run the callback before the function that begins the call has returned.
void GoneReporter::Impl::Begin(Call* next) {
  if (next == nullptr) return;
  const std::shared_ptr<proto::Cluster::Stub> stays = next->stub;
  stays->async()->ReportPeersGone(&next->context, &next->request, &next->reply,
                                  [this, next](const grpc::Status& status) { Done(next, status); });
}

void GoneReporter::Impl::Done(Call* ended, const grpc::Status& status) {
  Call* next = nullptr;
  std::unique_ptr<Call> gone;
  {
    const absl::MutexLock lock(&mutex);
    (status.ok() ? reported : dropped) += static_cast<uint64_t>(ended->request.peers_size());
    gone = std::move(call);
    next = Next();
  }
  Begin(next);
}

GoneReporter::GoneReporter(Nanos rpc_deadline) : impl_(std::make_unique<Impl>(rpc_deadline)) {}

GoneReporter::~GoneReporter() {
  const absl::MutexLock lock(&impl_->mutex);
  impl_->closing = true;
  if (impl_->call != nullptr) impl_->call->context.TryCancel();
  impl_->mutex.Await(absl::Condition(impl_.get(), &Impl::IsIdle));
}

void GoneReporter::SetStub(std::shared_ptr<proto::Cluster::Stub> stub) {
  const absl::MutexLock lock(&impl_->mutex);
  impl_->stub = std::move(stub);
}

void GoneReporter::Report(const std::string& ticket, const std::vector<GonePeer>& peers) {
  Impl& impl = *impl_;
  Call* next = nullptr;
  {
    const absl::MutexLock lock(&impl.mutex);
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
