#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/random.h"
#include "transport/transport.h"

namespace cistern {

class LoopbackTransport;

// What goes wrong in one direction between two hosts. Chances are per frame (or per pull) and drawn from the
// network's seed.
struct LinkFaults {
  Nanos delay_min = 20 * kMicrosecond;  // From Send to the first byte.
  Nanos delay_max = 200 * kMicrosecond;
  double spike = 0;  // Chance that a frame waits up to spike_max more; what follows queues behind it.
  Nanos spike_max = 100 * kMillisecond;
  Nanos chunk_max = 50 * kMicrosecond;  // Between two of the kLoopbackChunks pieces of a payload.
  double reset = 0;                     // The connection breaks instead of carrying the frame.
  double twice = 0;                     // A frame without payload comes again, late.
  double flip_body = 0;     // One bit of the encoded header and body: the frame's CRCs must catch it.
  double flip_payload = 0;  // One bit of the part bytes: the reader's or node's CRC must catch it.
};

// A payload arrives in so many pieces, so that cancels, evictions and crashes fall into the middle of it.
inline constexpr uint32_t kLoopbackChunks = 4;

// One thing that happened, for histories and digests. Views are valid during the call.
struct LoopbackEvent {
  Nanos at = 0;
  std::string_view what;      // "send", "frame", "chunk", "cut", "reset", "pull", "flip", "refused", ...
  std::string_view from, to;  // Hosts.
  uint32_t connection = 0;
  FrameType type{};
  uint64_t id = 0;  // Request or pull.
  uint64_t bytes = 0;
};

// The network of a simulation: connections between LoopbackTransports, one event queue ordered by (time,
// sequence), all chances from one seed. Frames are really encoded and decoded. Outlives its transports. One
// thread.
class LoopbackNetwork {
 public:
  enum class Crash : uint8_t {
    kReset,
    kSilent
  };  // kill -9 (the kernel says so) or power loss (nobody does).

  LoopbackNetwork(SimClock& clock, uint64_t seed);
  ~LoopbackNetwork();
  LoopbackNetwork(const LoopbackNetwork&) = delete;
  LoopbackNetwork& operator=(const LoopbackNetwork&) = delete;

  void SetDefaultFaults(const LinkFaults& faults) { default_faults_ = faults; }
  void SetFaults(const std::string& from, const std::string& to, const LinkFaults& faults);
  void ClearFaults() { faults_.clear(); }

  // Nothing passes from `from` to `to` until Heal: frames wait (a stream loses nothing), handshakes run into
  // their deadline.
  void PartitionOneWay(const std::string& from, const std::string& to);
  void Partition(const std::string& a, const std::string& b);
  void Heal(const std::string& a, const std::string& b);
  void HealAll() {
    cuts_.clear();
    Heal({}, {});
  }
  bool IsCut(const std::string& from, const std::string& to) const { return cuts_.count({from, to}) != 0; }

  // Breaks every connection between two hosts; both sides hear of it after a delay.
  void ResetConnections(const std::string& a, const std::string& b);
  // The process behind `host` is gone: its handlers are never called again, its memory is never read again,
  // its names are free. Destroy its transports next. The other sides hear of it (kReset) or not (kSilent).
  void CrashHost(const std::string& host, Crash how);

  // When the next queued event is due; kNever when nothing is under way.
  Nanos NextEventAt() const;
  // Moves what is due at clock.Now() to the endpoints it is for; their Poll hands it to the handlers. True if
  // any.
  bool Route();
  void SetObserver(std::function<void(const LoopbackEvent&)> observer) { observer_ = std::move(observer); }
  // How often a fault was injected, by name ("reset", "flip_body", "flip_payload", "parked").
  const std::map<std::string, uint64_t>& injected() const { return injected_; }
  void Count(const char* what) { ++injected_[what]; }
  SimClock& clock() { return clock_; }

 private:
  friend class LoopbackTransport;
  struct Frame;
  struct PullOp;
  struct Connection;
  struct Event;
  struct Later;

  const LinkFaults& FaultsOf(const std::string& from, const std::string& to) const;
  Nanos Draw(Nanos from, Nanos to);
  void Push(Nanos at, std::unique_ptr<Event> event);
  void Dispatch(std::unique_ptr<Event> event);
  bool StageChunk(Connection& connection, Event& event);
  void PullHalf(Connection& connection, Event& event);
  void Requeue(Connection& connection, int direction);
  void Observe(std::string_view what, const Connection& connection, int direction, FrameType type,
               uint64_t id, uint64_t bytes);

  // For LoopbackTransport. `side` is 0 for the connecting, 1 for the accepting end.
  void Register(const std::string& name, LoopbackTransport* endpoint);
  void Unregister(LoopbackTransport* endpoint);
  uint32_t Open(LoopbackTransport* from, PeerId peer, const std::string& name);
  absl::Status SendFrame(uint32_t connection, int side, const OutFrame& frame);
  void StartPull(uint32_t connection, int side, const PullRequest& request,
                 std::shared_ptr<MemoryRegion> memory /* shared with the peer: a pull may outlast it */);
  // This side is done with the connection; the other one hears of it after a delay unless `silent`.
  void Close(uint32_t connection, int side, bool silent);
  Connection* Find(uint32_t connection);

  SimClock& clock_;
  Random random_;
  LinkFaults default_faults_;
  std::map<std::pair<std::string, std::string>, LinkFaults> faults_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::map<std::string, LoopbackTransport*> names_;
  std::vector<LoopbackTransport*> endpoints_;  // In order of construction.
  std::map<uint32_t, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Event>> queue_;  // A heap by (time, sequence).
  uint64_t next_sequence_ = 0;
  uint32_t next_connection_ = 1;
  std::function<void(const LoopbackEvent&)> observer_;
  std::map<std::string, uint64_t> injected_;
};

}  // namespace cistern
