#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"

// gRPC's own headers cost seconds a file; who uses these functions includes <grpcpp/grpcpp.h> in its .cc.
namespace grpc {
class Channel;
class ClientContext;
class Status;
}  // namespace grpc

namespace cistern {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

// Keeps gRPC initialised until the process ends. Otherwise whoever drops the last channel, often one of
// gRPC's own threads, lets a detached thread take gRPC down, and a process that exits just then destroys
// statics under it. Called by whatever makes channels or servers.
void KeepGrpc();

// A channel that makes one connection of its own and never reconnects by itself faster than its owner asks:
// no shared subchannels, no transparent retries, no HTTP proxy from the environment. Keep-alive pings find a
// stopped or cut peer within `silent_max` while a call is open.
std::shared_ptr<grpc::Channel> MakeControlChannel(const std::string& address, Nanos silent_max);

// Lets one thread that makes blocking calls be stopped by another. Owner: whoever owns that thread; outlives
// it.
class CallGuard {
 public:
  // Cancels the call in progress and all later ones, ends the wait in progress. Thread: any; idempotent.
  void Stop();
  bool stopped() const;
  // Sleeps; false when stopped meanwhile.
  bool WaitFor(Nanos time);

  // Names the call that Stop has to cancel, for its scope; scopes may nest. The context outlives it.
  class Scope {
   public:
    Scope(CallGuard& guard, grpc::ClientContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CallGuard& guard_;
    grpc::ClientContext* outer_;
  };

 private:
  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

inline std::chrono::system_clock::time_point GrpcDeadline(Nanos from_now) {
  return std::chrono::system_clock::now() + std::chrono::nanoseconds(from_now);
}

}  // namespace cistern
