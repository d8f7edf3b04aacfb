#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cistern/client.h"
#include "client/chain.h"
#include "client/control/router_link.h"
#include "client/core/client_core.h"
#include "client/core/group_plan.h"
#include "client/host_share.h"
#include "client/request_cache.h"
#include "client/window.h"
#include "core/clock.h"
#include "core/forks.h"
#include "core/mailbox.h"
#include "core/make_room.h"
#include "core/mutex.h"
#include "core/random.h"
#include "transport/transport.h"

namespace cistern {

Status ForkedStatus();
// Refuses a child of a process that has spoken gRPC.
Status ClaimGrpc();

// What copies of a Hit share with the client that granted it; the client takes itself out when it goes.
struct ClientAnchor {
  const uint32_t forks = ForkCount();  // Under another one the mutex is not looked at.
  Mutex mutex;
  Client::Impl* client ABSL_GUARDED_BY(mutex) = nullptr;
};

struct Hit::Rep {
  ~Rep();  // Releases the plan, if the client still lives. Never under the client's lock.
  std::shared_ptr<ClientAnchor> anchor;  // Owners: the client and each of its hits.
  PlanHandle plan = 0;
  Chain chain;
  uint32_t blocks = 0;
  PartResult stopped_by = PartResult::kMiss;
  MissReason why = MissReason::kNone;
  // Layouts of several groups.
  std::vector<PlanHandle> more_plans;  // Sets of history groups behind the first, 0 where there is none.
  PlanHandle tail_plan = 0;            // Of the last block of the hit.
  HitDecision decision;
  // Of a request whose ranks take one answer.
  std::optional<BlockHash> request;
  uint32_t ranks = 1;
  uint32_t asked = 0;
  bool released = false;  // Under the client's lock.
  // Released, or found lost: nobody gets it again. Owners: this, and a recheck under way.
  std::shared_ptr<std::atomic<bool>> over = std::make_shared<std::atomic<bool>>(false);
  BlockHash first_block() const;
};

// Behind Client: the core under one mutex, the fds that tell when to poll, callbacks run outside of the lock.
//
// Whoever waits drives: waiting threads poll in turn; one of them sleeps on the epoll fd when there is
// nothing to do, the others then sleep on `turn_` until their call is done or that seat is free. The link's
// thread only leaves the newest map and ticket in `news_`. Members are declared in the order they depend on
// each other.
struct Client::Impl {
  // Without a clock it has its own; one that is given stays for as long as the process lasts.
  explicit Impl(const ClientOptions& options, Clock* clock = nullptr);
  ~Impl();
  static Result<std::unique_ptr<Client>> Connect(const ClientOptions& options, Clock* clock = nullptr);

  // One call of a user, told to Close by being counted. False in a child of fork(): nothing of the client may
  // be touched then.
  class Entry {
   public:
    enum class Kind : uint8_t { kCall, kPoll };
    explicit Entry(Impl* impl, Kind kind = Kind::kCall);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    explicit operator bool() const { return entered_; }

   private:
    friend struct Client::Impl;
    Impl* impl_;          // Null too when a callback has freed the client.
    Entry* const outer_;  // Of this thread, whatever client's.
    const bool entered_ = impl_ != nullptr;
    const Kind kind_;
  };
  bool Forked() const { return ForkCount() != forks_; }

  // client_close.cc. Ends every call with kCancelled and waits until other threads have left; false: one has
  // not, for too long.
  bool Close() ABSL_LOCKS_EXCLUDED(mutex_);
  bool CloseToFree() noexcept;  // False: it has to stay.
  static void Keep(Impl* impl);
  void EndCalls() ABSL_LOCKS_EXCLUDED(mutex_);
  uint32_t MyEntries(bool& waits) const;
  // Runs and clears them; the first exception of a callback is kept, the others run all the same.
  static void RunAll(std::vector<std::function<void()>>& run, std::exception_ptr& thrown);

  Status Init();
  // Sockets, the put window, and the fabric where there is to be one.
  Status OpenTransport() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Where `submit` throws, what it has begun ends: no byte lands in memory that the caller has back.
  template <typename Submit>
  auto AsOneCall(Submit&& submit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const ClientCore::OneCall one(*core_);
    try {
      return submit();
    } catch (...) {
      core_->Cancel(one.id());
      throw;
    }
  }
  // Runs `submit` with the lock held and the core's news applied.
  template <typename Submit>
  auto Locked(Submit&& submit, bool will_wait = false) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    DrainMail();
    auto result = AsOneCall(submit);
    if (!will_wait || asleep_) Arm();
    return result;
  }
  bool Poll() ABSL_LOCKS_EXCLUDED(mutex_);
  // The room of ready_ stays: calls under way count on it.
  void TakeReady(std::vector<std::function<void()>>& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    MakeRoom(run, ready_.size());
    for (auto& callback : ready_) run.push_back(std::move(callback));
    ready_.clear();
  }
  // Drives until *done, which is set under the lock by a core callback.
  void WaitFor(const bool* done) ABSL_LOCKS_EXCLUDED(mutex_);
  void Drive(const bool* done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A call that waits, on its thread's stack. The core's callback finds it by its number: a thread that
  // leaves with an exception is not there any more.
  struct Waiting {
    uint64_t serial = 0;
    OpId op = 0;
    bool done = false;
    Waiting* next = nullptr;
  };
  // A place among the waiters, under the lock.
  class Seat {
   public:
    Seat(Impl& impl, Waiting& waiting);
    ~Seat();
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

   private:
    Impl& impl_;
    Waiting& waiting_;
  };
  Waiting* FindWaiting(uint64_t serial) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Submits a call that ends with a callback; see client_telling.h.
  template <typename... Args, typename Submission>
  CallId Call(std::function<void(Args...)> done, Submission&& submit) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReleaseHit(Hit::Rep& rep) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReleasePlan(PlanHandle plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleasePlans(const GroupPlanOutcome& plans) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Pages into the core's flat form (scratch, valid until the next call).
  PageView View(std::span<const Page> pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ConstPageView View(std::span<const ConstPage> pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Chain, slices and deadline into a CallSpec (coords are scratch).
  Status Spec(const Chain& chain, const CallOptions& options, CallSpec& out)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status Coords(const Chain& chain, const CallOptions& options) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A call's time from now, its own or the client's default; and when one that begins now has to end.
  Nanos TimeOf(const CallOptions& options) const;
  Nanos EndOf(const CallOptions& options) { return clock_.Now() + TimeOf(options); }

  template <typename Outcome>
  OpId SubmitFind(const Chain& chain, const CallOptions& options,
                  OpId (ClientCore::*find)(const CallSpec&, std::function<void(const Outcome&)>),
                  std::function<void(const Outcome&)> sink) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  OpId Submit(const Chain& chain, const CallOptions& options, LookupDone sink)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  OpId Submit(const Chain& chain, const CallOptions& options, PlanDone sink)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  OpId SubmitLoad(const Hit& hit, uint32_t first, std::span<const Page> pages, const CallOptions& options,
                  LoadDone sink) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  OpId SubmitFetch(const Chain& chain, std::span<const Page> pages, const CallOptions& options, LoadDone sink)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  OpId SubmitStore(const Chain& chain, uint32_t first, std::span<const ConstPage> pages,
                   const CallOptions& options, StoreDone sink) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Shorter than the smallest prefix that is looked for.
  bool IsBelowMinimum(const Chain& chain) const {
    return chain.rep() != nullptr &&
           uint64_t{chain.blocks()} * chain.rep()->spec.block_tokens < options_.min_prefix_tokens;
  }
  Hit MakeHit(const Chain& chain, const PlanOutcome& outcome);

  // client_groups.cc: layouts of several groups.
  static Status Share(const Chain& chain, const CallOptions& options, std::vector<GroupShare>& out);
  OpId SubmitGroups(const Chain& chain, const CallOptions& options, bool lease, GroupPlanDone sink,
                    bool probe = false) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Hit MakeGroupHit(const Chain& chain, GroupPlanOutcome outcome, const CallOptions& options);
  Result<GroupPlanOutcome> WaitForGroups(const Chain& chain, const CallOptions& options, bool lease)
      ABSL_LOCKS_EXCLUDED(mutex_);
  static Status TailPartsOf(const Chain& chain, const CallOptions& options, uint64_t tokens,
                            StoredParts& out);
  OpId SubmitLoadTail(const Hit& hit, const Page& page, const CallOptions& options, LoadDone sink)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  OpId SubmitStoreTail(const Chain& chain, uint64_t tokens, const ConstPage& page, const TailOptions& tail,
                       const CallOptions& options, StoreDone sink) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // client_ranks.cc: what several ranks hold alike.
  static Status SplitOf(const Chain& chain, const CallOptions& options, std::vector<GroupShare>& shares,
                        bool& shared, bool load);
  OpId StoreShared(const Chain& chain, uint32_t first, std::span<const ConstPage> pages,
                   const CallOptions& options, const std::vector<GroupShare>& shares, const CallSpec& spec,
                   StoreDone sink) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  OpId LoadShared(const Hit& hit, uint32_t first, std::span<const Page> pages, const CallOptions& options,
                  const std::vector<GroupShare>& shares, LoadDone sink) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // client_share.cc: what ranks of this host hand each other. Of coords_, by part; empty: nothing.
  std::vector<uint8_t> SharedParts(const Chain& chain, const CallOptions& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  struct SharedFetch;
  OpId FetchInTwo(const Chain& chain, std::span<const Page> pages, const CallOptions& options,
                  const CallSpec& spec, LoadDone sink) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoadFound(const std::shared_ptr<SharedFetch>& fetch, const PlanOutcome& plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // client_fetch.cc
  struct GroupFetch;
  OpId SubmitFetchGroups(const Chain& chain, std::span<const Page> pages, const CallOptions& options,
                         LoadDone sink) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoadFetched(const std::shared_ptr<GroupFetch>& fetch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishFetch(GroupFetch& fetch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // client_request.cc: one answer for all ranks of a request.
  static bool PlansGroups(const Chain& chain, const CallOptions& options) {
    return LooksUpGroups(chain, options) || !options.request_id.empty();
  }
  static bool LooksUpGroups(const Chain& chain, const CallOptions& options) {
    return chain.grouped() || (chain.rep() != nullptr && !options.breakpoints.empty());
  }
  // All parts of a chain's blocks: what ranks of one request have to agree on.
  static std::shared_ptr<const GroupLayout> GroupsOf(const Chain& chain);
  // What this client has told before of the same request. Never under the client's lock.
  Hit KnownHit(const Chain& chain, const CallOptions& options);
  static Status NameRequest(const Chain& chain, const CallOptions& options, std::optional<BlockHash>& out);
  OpId SubmitRecheck(const Hit& hit, const CallOptions& options, RecheckDone sink)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Status ConnectRouter();  // The last step of Init.
  void OnNews();           // From the link's thread.
  void TakeNews() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DrainMail() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool did = mailbox_.Drain();
    if (taken_map_.has_value() || taken_ticket_.has_value()) TakeNews();  // It ran out of memory.
    return did;
  }
  void TellFinished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool PollLocked(std::vector<std::function<void()>>& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Arm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sleep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake();

  const ClientOptions options_;
  const uint32_t forks_ = ForkCount();
  std::atomic<uint32_t> inside_{0};  // Entries.
  Impl* kept_before_ = nullptr;
  BootClock boot_clock_;
  Clock& clock_;
  Random random_;
  int epoll_fd_ = -1;
  int timer_fd_ = -1;
  int wake_fd_ = -1;  // Another thread finished the sleeping driver's call.
  Mailbox mailbox_;

  Mutex news_mutex_;
  std::optional<ClusterMap> news_map_ ABSL_GUARDED_BY(news_mutex_);
  std::optional<TicketGrant> news_ticket_ ABSL_GUARDED_BY(news_mutex_);

  Mutex mutex_;
  CondVar turn_;
  // Of the news, until the core has it.
  std::optional<ClusterMap> taken_map_ ABSL_GUARDED_BY(mutex_);
  std::optional<TicketGrant> taken_ticket_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<PutWindow> window_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HostShare> share_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Transport> transport_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ClientCore> core_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> ready_ ABSL_GUARDED_BY(mutex_);  // To be run once the lock is free.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  Waiting* waiting_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t waiting_serial_ ABSL_GUARDED_BY(mutex_) = 0;
  Nanos armed_at_ ABSL_GUARDED_BY(mutex_) = kNever;
  bool asleep_ ABSL_GUARDED_BY(mutex_) = false;  // One waiter is in epoll_wait.
  uint32_t waiters_ ABSL_GUARDED_BY(mutex_) = 0;
  bool finished_ ABSL_GUARDED_BY(mutex_) =
      false;  // Some waiter's call was completed since the flag was cleared.
  std::vector<Segment> segments_ ABSL_GUARDED_BY(mutex_);
  std::vector<ConstSegment> const_segments_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> ends_ ABSL_GUARDED_BY(mutex_);
  std::vector<PartCoord> coords_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> coord_bytes_ ABSL_GUARDED_BY(mutex_);  // Of coords_; empty: one size.

  RequestCache requests_;
  std::shared_ptr<ClientAnchor> anchor_;
  std::unique_ptr<RouterLink> link_;  // Last: its thread posts here until it is gone.
};

}  // namespace cistern
