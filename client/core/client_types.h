#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/ids.h"
#include "core/miss_reason.h"
#include "core/part.h"
#include "core/retention.h"
#include "transport/transport.h"

// What goes into and comes out of ClientCore: plain values, borrowed views, one callback type a call.
namespace cistern {

class HostShare;
class PutWindow;

inline constexpr size_t kOperationsMax =
    4096;  // Calls outstanding in one client; more end with ResourceExhausted.
inline constexpr size_t kPlansMax = 65536;  // Plans held at once.
inline constexpr Nanos kLeaseTtlMax = 30 * kSecond;

struct ClientCoreOptions {
  std::string transport = "auto";  // "auto", "map", "socket" or "ucx".
  bool fabric = false;             // The transport takes "ucx:" addresses.
  Nanos default_deadline = 2 * kSecond;
  Nanos lease_ttl = 2 * kSecond;
  uint32_t breaker_failures = 5;             // Failures in a row that open a peer's breaker.
  Nanos breaker_retry = 500 * kMillisecond;  // Then one probe.
  Nanos negative_ttl = 1 * kSecond;          // A peer found dead is not asked again for this long.
  uint64_t client_id = 0;                    // 0: drawn from Random.
  HostShare* share = nullptr;                // Null: no part comes from other ranks. Must outlive the core.
  PutWindow* window = nullptr;  // Null: stores send bytes in line. Must outlive the core and the transport.
};

// The blocks a call is about. Borrowed until its callback has run (a plan: until it is released); `keep` may
// hold them.
struct ChainView {
  LayoutId layout;
  uint32_t part_bytes = 0;
  absl::Span<const BlockKey> blocks;  // From the chain's first block on.
  std::shared_ptr<const void> keep;   // Two owners: the caller and the operation.
};
struct CallSpec {
  ChainView chain;
  absl::Span<const PartCoord> coords;        // Parts wanted of each block, in page order; copied.
  Nanos deadline = 0;                        // From now; 0: default_deadline.
  bool probe = false;                        // Lookup by an operator: counts in no hit counter.
  absl::Span<const uint32_t> coord_bytes{};  // Bytes of each of `coords`; empty: chain.part_bytes all.
  uint32_t first = 0;                        // Plan: block to begin with; those before it are not asked for.
  uint32_t tail_parts = 0;  // Not 0: about the tail at the end of the last block, whole with so many parts.
  bool junction = false;    // Store of a tail: prompts part there.
  Retention retention{};    // Store: how long the parts are wanted.
};

// Pages as flat segment lists: page i has segments [ends[i-1], ends[i]). The lists are copied, the memory is
// borrowed.
struct PageView {
  absl::Span<const Segment> segments;
  absl::Span<const uint32_t> ends;
  size_t size() const { return ends.size(); }
};
struct ConstPageView {
  absl::Span<const ConstSegment> segments;
  absl::Span<const uint32_t> ends;
  size_t size() const { return ends.size(); }
};

using OpId = uint64_t;        // Never 0 for an accepted call.
using PlanHandle = uint64_t;  // 0: none (a hit of length 0).

// A call of several operations (ClientCore::OneCall): the first one's id, 0 before there is one.
struct CallScope {
  OpId id = 0;
  bool over = false;  // Cancelled.
};

// `status` is not OK only for requests that break a limit or ran out of pool; misses, dead peers and
// deadlines are OK with the reason in the results. Spans are valid during the callback.
struct LookupOutcome {
  absl::Status status;
  uint32_t blocks = 0;
  PartResult stopped_by = PartResult::kOk;
  MissReason why = MissReason::kNone;  // Why the next block is no hit.
  absl::Span<const uint64_t> tails{};  // Bit i: the tail at the end of block i is whole. May end early.
};
struct PlanOutcome {
  absl::Status status;
  PlanHandle plan = 0;
  uint32_t blocks = 0;
  PartResult stopped_by = PartResult::kOk;
  MissReason why = MissReason::kNone;
  absl::Span<const uint64_t> tails{};
};
struct LoadOutcome {
  absl::Status status;
  uint32_t hit_blocks = 0;
  absl::Span<const PartResult> pages;
  uint64_t bytes = 0;
};
struct StoreOutcome {
  absl::Status status;
  absl::Span<const PartResult> pages;
  uint64_t bytes = 0;
};
struct AdminOutcome {
  PartResult result = PartResult::kOk;  // kOk: `body` is the reply's body.
  absl::Status status;                  // Why not, for people.
  ByteView body;
};
// What all ranks of a request take for its hit.
struct AgreeOutcome {
  PartResult result = PartResult::kOk;  // Not kOk: nobody could be asked.
  uint64_t tokens = 0;
  uint32_t asked = 0;  // Ranks that have proposed so far.
};
using AgreeDone = std::function<void(const AgreeOutcome&)>;
using RecheckDone = std::function<void(PartResult)>;
using LookupDone = std::function<void(const LookupOutcome&)>;
using PlanDone = std::function<void(const PlanOutcome&)>;
using LoadDone = std::function<void(const LoadOutcome&)>;
using StoreDone = std::function<void(const StoreOutcome&)>;
using AdminDone = std::function<void(const AdminOutcome&)>;

// One row a peer: what `cistern peers` shows.
struct PeerRow {
  std::string node;
  uint64_t incarnation = 0;
  uint32_t shard = 0;
  std::string state;  // "up", "connecting", "down", "breaker-open"
  PeerPath path;      // When up.
  std::string why;    // Why this path, or why down.
};

using CounterList = std::vector<std::pair<std::string, uint64_t>>;

}  // namespace cistern
