#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/gone_peer.h"
#include "proto/cluster.grpc.pb.h"

namespace cistern {

// Sends reports of dead nodes to the router: one at a time, on a thread of its own that begins with the first
// report, so that nobody waits. gRPC's threads run nothing of it: what they still do with a call when its
// callback has returned could not be waited for, and ran into the exit of the process. Owner: RouterLink.
// Thread-safe. The destructor cancels what is out and joins.
class GoneReporter {
 public:
  explicit GoneReporter(Nanos rpc_deadline);
  ~GoneReporter();
  GoneReporter(const GoneReporter&) = delete;
  GoneReporter& operator=(const GoneReporter&) = delete;

  // The connection of the day; empty while there is none. A report that is out keeps the one it began with.
  void SetStub(std::shared_ptr<proto::Cluster::Stub> stub);
  void Report(const std::string& ticket, const std::vector<GonePeer>& peers);
  uint64_t reported() const;
  uint64_t dropped() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cistern
