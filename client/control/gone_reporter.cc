#include "client/control/gone_reporter.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/convert_control.h"
#include "proto/grpc_util.h"

namespace cistern {

struct GoneReporter::Impl {
  explicit Impl(Nanos deadline) : rpc_deadline(deadline) {}
  void Run();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return closing || !waiting.empty(); }
  bool Send(proto::Cluster::Stub& to, const GoneReport& report);

  const Nanos rpc_deadline;
  CallGuard guard;
  mutable absl::Mutex mutex;
  bool closing ABSL_GUARDED_BY(mutex) = false;
  // Two owners: the link's session and this, or the report that is out.
  std::shared_ptr<proto::Cluster::Stub> stub ABSL_GUARDED_BY(mutex);
  std::string ticket ABSL_GUARDED_BY(mutex);
  std::vector<GonePeer> waiting ABSL_GUARDED_BY(mutex);  // kGonePeersMax at most.
  uint64_t reported ABSL_GUARDED_BY(mutex) = 0;
  uint64_t dropped ABSL_GUARDED_BY(mutex) = 0;
  std::thread thread ABSL_GUARDED_BY(mutex);  // Begins once; only the destructor looks at it afterwards.
};

bool GoneReporter::Impl::Send(proto::Cluster::Stub& to, const GoneReport& report) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(rpc_deadline));
  const CallGuard::Scope scope(guard, context);
  proto::ReportPeersGoneReply reply;
  return to.ReportPeersGone(&context, ToWire(report), &reply).ok();
}

void GoneReporter::Impl::Run() {
  for (;;) {
    std::shared_ptr<proto::Cluster::Stub> to;
    GoneReport report;
    {
      const absl::MutexLock lock(&mutex);
      mutex.Await(absl::Condition(this, &Impl::HasWork));
      if (closing) return;
      to = stub;
      report = GoneReport{ticket, std::exchange(waiting, {})};
    }
    const bool taken = to != nullptr && Send(*to, report);
    const absl::MutexLock lock(&mutex);
    (taken ? reported : dropped) += report.peers.size();
  }
}

GoneReporter::GoneReporter(Nanos rpc_deadline) : impl_(std::make_unique<Impl>(rpc_deadline)) {}

GoneReporter::~GoneReporter() {
  std::thread thread;
  {
    const absl::MutexLock lock(&impl_->mutex);
    impl_->closing = true;
    thread = std::move(impl_->thread);
  }
  impl_->guard.Stop();
  if (thread.joinable()) thread.join();
}

void GoneReporter::SetStub(std::shared_ptr<proto::Cluster::Stub> stub) {
  const absl::MutexLock lock(&impl_->mutex);
  impl_->stub.swap(stub);  // What it held goes after the lock.
}

void GoneReporter::Report(const std::string& ticket, const std::vector<GonePeer>& peers) {
  Impl& impl = *impl_;
  const absl::MutexLock lock(&impl.mutex);
  impl.ticket = ticket;
  if (impl.stub == nullptr || impl.closing) {
    impl.dropped += peers.size();
    return;
  }
  for (const GonePeer& peer : peers) {
    if (std::find(impl.waiting.begin(), impl.waiting.end(), peer) != impl.waiting.end()) continue;
    if (impl.waiting.size() == kGonePeersMax) {
      ++impl.dropped;
      continue;
    }
    impl.waiting.push_back(peer);
  }
  if (impl.thread.joinable()) return;
  try {
    impl.thread = std::thread([&impl] { impl.Run(); });
  } catch (const std::system_error&) {  // No thread is to be had now: told when the node is found dead again.
    impl.dropped += std::exchange(impl.waiting, {}).size();
  }
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
