#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/core/client_types.h"
#include "core/clock.h"
#include "core/cluster_map.h"
#include "core/gone_peer.h"
#include "core/random.h"
#include "transport/transport.h"

namespace cistern {

// Rounds of callbacks while closing: one that asks again after each refusal is not told for ever.
inline constexpr uint32_t kCloseRoundsMax = 64;

// The deterministic heart of the client: placement, peers, plans, pulls, checks, stores. The facade and the
// simulator run the same one. It never blocks, sleeps or reads a clock of its own; what it does, it does in
// Poll() and in the submitting calls, and every operation's callback runs exactly once, inside a later Poll()
// (never inside the submitting call). Operations are pooled: a warm Lookup, Plan, Load or Fetch allocates
// nothing.
//
// Owner: whoever calls Poll. Thread: one. Lifetime: the transport, clock, random and window outlive it; the
// destructor closes.
class ClientCore {
 public:
  // Becomes the transport's handler.
  ClientCore(const ClientCoreOptions& options, Clock& clock, Transport& transport, Random& random);
  ~ClientCore();
  // Ends what is outstanding with kCancelled (callbacks run) after fencing every peer. What is asked for from
  // then on, also by those callbacks, is refused as CANCELLED, and the transport is asked for nothing more.
  void Close();
  ClientCore(const ClientCore&) = delete;
  ClientCore& operator=(const ClientCore&) = delete;

  // A new view of the cluster. Peers of nodes (id, incarnation) that it does not list are cut off. An address
  // "sim:NAME" in ShardAddress::tcp or unix_name is taken as it stands; others get "tcp:" and "unix:" before
  // them.
  void SetMap(const ClusterMap& map);
  // What HELLO carries. The namespace secret is kept for whoever hashes chains.
  void SetCredentials(std::string ticket, const std::array<uint8_t, 32>& namespace_secret,
                      const ClusterId& cluster);
  const ClusterMap& map() const;
  bool has_credentials() const;
  const std::array<uint8_t, 32>& namespace_secret() const;

  // Leading blocks of the chain that are present on their owners; no lease.
  OpId Lookup(const CallSpec& call, LookupDone done);
  // The same, leased: descriptors are kept until Release or the lease's end.
  OpId Plan(const CallSpec& call, PlanDone done);
  // Blocks [first, first + pages) of a plan, of the coords given (some of the plan's; empty: all of them).
  // `shared`: by coord, whether other ranks of this host load that part too, see ClientCoreOptions::share.
  OpId Load(PlanHandle plan, uint32_t first, const PageView& pages, absl::Span<const PartCoord> coords,
            Nanos deadline, LoadDone done, absl::Span<const uint8_t> shared = {});
  // Plan and Load in one; page i takes block i, blocks behind the pages are not asked for.
  OpId Fetch(const CallSpec& call, const PageView& pages, LoadDone done);
  // Stores blocks [first, first + pages) of call.chain.
  OpId Store(const CallSpec& call, uint32_t first, const ConstPageView& pages, StoreDone done);
  void Release(PlanHandle plan);
  // The chain has a newer tail than the one at the end of `block`, and goes on with a block whose hash begins
  // with `successor`: tells its owner, who lets the older one go first unless prompts part there. No answer.
  void Supersede(const ChainView& chain, uint32_t block, uint64_t successor);
  // One answer for all ranks of a request (F50): proposes a hit's length to the owner of the chain's first
  // run, or only asks; the first proposal is everybody's answer.
  OpId Agree(const BlockHash& first_block, const AgreeRequest& request, Nanos deadline, AgreeDone done);
  // Renews the plan's leases and tells whether it still holds: kOk, kLeaseExpired, kPeerGone, ...
  OpId Recheck(PlanHandle plan, Nanos deadline, RecheckDone done);
  // Gives the plan up without telling its owners: its leases end by themselves.
  void Forget(PlanHandle plan);
  // Ends the call with kCancelled for what had not arrived; its memory is free once done has run.
  void Cancel(OpId op);
  // What is asked for while one lives, and what the callbacks of that ask for, is one call: Cancel with the
  // id of its first operation ends all of it, and nothing more of it begins.
  class OneCall {
   public:
    explicit OneCall(ClientCore& core);
    ~OneCall();
    OneCall(const OneCall&) = delete;
    OneCall& operator=(const OneCall&) = delete;
    OpId id() const { return scope_.id; }  // 0: nothing has begun.

   private:
    ClientCore& core_;
    CallScope scope_;
    CallScope* const before_;
  };

  // Node that serves block `index` of a live plan; empty otherwise.
  std::string_view PlanOwner(PlanHandle plan, uint32_t index) const;

  // Admin: STATS, DROP or QUOTA of one shard. NodeStats is the reply's body, as the wire has it.
  OpId FetchNodeStats(std::string_view node, uint32_t shard, Nanos deadline, AdminDone done);
  OpId Drop(std::string_view node, uint32_t shard, const DropRequest& drop, Nanos deadline, AdminDone done);
  OpId Quota(std::string_view node, uint32_t shard, const QuotaRequest& quota, Nanos deadline,
             AdminDone done);
  // Begins connecting to every shard of the map that is not up; PeerRows tells the outcome.
  void ConnectAll();

  // Moves everything that can move and runs callbacks; true if anything happened.
  bool Poll();
  // When Poll has to be called at the latest though nothing arrives; kNever when nothing waits on time.
  Nanos NextWake() const;
  size_t outstanding() const;  // Operations whose callback has not run.

  // Nodes found dead since last asked, each at most once a second: whoever has a link to the router tells it
  // (F32).
  bool HasGonePeers() const;
  std::vector<GonePeer> TakeGonePeers();
  // Whether a node has refused the ticket since last asked: another one may be taken.
  bool TakeTicketRefused();

  std::vector<PeerRow> PeerRows() const;
  PeerId PeerOf(std::string_view node, uint32_t shard) const;  // 0 when not up.
  CounterList Counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cistern
