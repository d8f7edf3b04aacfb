#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cache_node/node_shard.h"
#include "core/clock.h"
#include "core/mailbox.h"
#include "core/mutex.h"
#include "core/node_stats.h"
#include "core/random.h"
#include "transport/transport.h"

namespace cistern {

// Longer than a client takes to copy 1 MiB out of an arena (60 us): asleep after 50 us, the node had to be
// woken for every read of that size, and 16 x 64 KiB took 103 us in place of 75 to 81 (docs/adr/0005).
inline constexpr Nanos kSpinAfterWork = 200 * kMicrosecond;
// An idle shard wakes this often all the same, so that its last-poll time tells a stuck one from a sleeping
// one.
inline constexpr Nanos kShardSleepMax = 250 * kMillisecond;

// How long a stopping node waits for its disk; what is not durable by then is lost, as in a crash.
inline constexpr Nanos kDiskStopMax = 5 * kSecond;

// The thread of one shard, with all that lives on it: polls the shard, spins a little after work, else sleeps
// on the transport, the mailbox and the next timer. Owner: main. Lifetime: Create, Start, Stop (also by the
// destructor, which joins). Thread: any, except where said.
class ShardLoop {
 public:
  static absl::StatusOr<std::unique_ptr<ShardLoop>> Create(NodeShardOptions options,
                                                           std::unique_ptr<Transport> transport,
                                                           std::unique_ptr<Clock> clock, uint64_t seed);
  ~ShardLoop();
  ShardLoop(const ShardLoop&) = delete;
  ShardLoop& operator=(const ShardLoop&) = delete;

  void Start();
  // Ends every peer, then the thread. Idempotent.
  void Stop();

  // Before Start: tells the transport of the arena, which a fabric's device then registers.
  absl::Status RegisterArena();

  // Runs on the shard's thread. False: kMailboxDepthMax tasks wait.
  [[nodiscard]] bool Post(std::function<void(NodeShard&)> task);
  // The snapshot that was made last, and asks for a new one: never waits for a busy shard.
  NodeStats LatestStats();
  // When the loop turned last (F47).
  Nanos last_poll() const { return last_poll_.load(std::memory_order_relaxed); }
  // Before Start, or on the shard's thread.
  NodeShard& shard() { return *shard_; }

 private:
  ShardLoop(std::unique_ptr<Transport> transport, std::unique_ptr<Clock> clock, uint64_t seed)
      : clock_(std::move(clock)), random_(seed), transport_(std::move(transport)) {}
  void Run();
  void Sleep(Nanos now);

  std::unique_ptr<Clock> clock_;
  Random random_;
  std::unique_ptr<Transport> transport_;
  Mailbox mailbox_;
  std::unique_ptr<NodeShard> shard_;  // Uses clock, random and transport; goes first.
  std::atomic<bool> stop_{false};
  std::atomic<Nanos> last_poll_{0};
  std::atomic<bool> snapshot_asked_{false};
  Mutex mutex_;
  NodeStats snapshot_ ABSL_GUARDED_BY(mutex_);
  bool arena_registered_ = false;
  std::thread thread_;
};

}  // namespace cistern
