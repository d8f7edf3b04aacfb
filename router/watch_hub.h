#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "proto/cluster.pb.h"

// Only router/service.cc includes this: gRPC types stay inside the service.
namespace cistern {

class WatchReactor;
using SharedMap = std::shared_ptr<const proto::ClusterMap>;  // Shared by the hub and the writes in progress.

// All open watches of the map. Each holds at most one map being written and one waiting (the newest): memory
// does not grow with a reader that does not read; it is cut off instead and has to ask again (S04). Owner:
// the service; outlives all reactors, since the server's shutdown waits for them. Thread: any.
class WatchHub {
 public:
  struct Limits {
    size_t watchers_max;
    Nanos keep_alive;  // A copy of the map after this much silence.
    Nanos slow_max;    // A write that takes longer cuts its reader off.
  };
  WatchHub(const Limits& limits, Clock& clock) : limits_(limits), clock_(clock) {}

  // A new watch; it ends at once with RESOURCE_EXHAUSTED when there are too many.
  grpc::ServerWriteReactor<proto::ClusterMap>* Open(grpc::CallbackServerContext& context,
                                                    uint64_t known_epoch);
  void Publish(const SharedMap& map);
  // Keep-alive copies, and slow readers.
  void Turn();
  // Ends every watch, and refuses new ones.
  void Close();

  size_t watchers() const;
  uint64_t cut_off() const;

 private:
  friend class WatchReactor;
  std::vector<std::shared_ptr<WatchReactor>> Snapshot() const;
  void Forget(WatchReactor* reactor);

  const Limits limits_;
  Clock& clock_;
  mutable absl::Mutex mutex_;
  // Shared by the hub and, for the length of a call into it, whoever holds a snapshot.
  std::map<WatchReactor*, std::shared_ptr<WatchReactor>> watchers_ ABSL_GUARDED_BY(mutex_);
  SharedMap latest_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t cut_off_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cistern
