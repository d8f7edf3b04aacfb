#include "tests/sim/sim_client.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "tests/sim/sim_call.h"

namespace cistern {
namespace {

constexpr size_t kWindowBytes = 1u << 20;
constexpr Nanos kDefaultDeadline = 1 * kSecond;
constexpr Nanos kRetiredFor = 4 * kSecond;  // Longer than any transfer can be under way.

}  // namespace

SimClient::SimClient(SimWorld& world, SimChains& chains, std::string host)
    : world_(world),
      chains_(chains),
      host_(std::move(host)),
      clock_(world.clock, static_cast<Nanos>(world.random.Below(100'000)) * kSecond,
             static_cast<int64_t>(world.random.Below(401)) - 200) {}

SimClient::~SimClient() { process_.reset(); }

void SimClient::Start() {
  CISTERN_CHECK(process_ == nullptr);
  process_ = std::make_unique<Process>();
  process_->nonce = world_.random.Next();
  process_->random = std::make_unique<Random>(world_.random.Next());
  LoopbackOptions transport;
  transport.host = host_;
  transport.one_sided = world_.random.Chance(0.6);
  transport.can_cancel = world_.random.Chance(0.8);
  process_->transport = std::make_unique<LoopbackTransport>(world_.network, transport);
  ClientCoreOptions options;
  options.default_deadline = kDefaultDeadline;
  options.lease_ttl = (100 + static_cast<Nanos>(world_.random.Below(1500))) * kMillisecond;
  if (transport.one_sided && world_.random.Chance(0.8)) {
    absl::StatusOr<PutWindow> window = PutWindow::Create(kWindowBytes);
    CISTERN_CHECK(window.ok());
    process_->window = std::make_unique<PutWindow>(*std::move(window));
    options.window = process_->window.get();
  }
  process_->core = std::make_unique<ClientCore>(options, clock_, *process_->transport, *process_->random);
  world_.log.Event("start", host_, transport.one_sided, process_->window != nullptr);
  ControlTurn(process_->nonce);
}

void SimClient::SetDrift(int64_t ppm) {
  clock_.SetDrift(ppm);
  if (ppm == 0) return;
  world_.log.Event("slow clock", host_, static_cast<uint64_t>(-ppm));
  world_.log.Mark("clock_slowed");
}

void SimClient::Crash(LoopbackNetwork::Crash how) {
  if (process_ == nullptr) return;
  TakeMarks();
  world_.log.Event("crash", host_, static_cast<uint64_t>(how), calls_out_);
  world_.log.Mark(calls_out_ != 0 ? "client_died_in_calls" : "client_died");
  world_.network.CrashHost(host_, how);
  process_.reset();  // Ends every call.
  if (calls_out_ != 0) world_.log.Fail(host_ + ": calls left over after the core was destroyed");
}

void SimClient::ControlTurn(uint64_t nonce) {
  if (process_ == nullptr || process_->nonce != nonce) return;
  const bool wants_ticket = !process_->has_credentials;
  const uint64_t known = process_->core->map().epoch;
  const GoneReport gone{process_->ticket, process_->core->TakeGonePeers()};
  world_.Rpc(host_, [this, nonce, wants_ticket, known, gone](Router& router) -> std::function<void()> {
    if (!gone.peers.empty() && router.ReportPeersGone(gone, world_.UnixNow()).ok())
      world_.log.Mark("peer_gone_reported", gone.peers.size());
    const ClusterMap map = router.map();
    const bool has_map = map.epoch != known;
    absl::StatusOr<TicketGrant> grant = absl::UnavailableError("not asked");
    if (wants_ticket)
      grant = router.IssueTicket("", kRightRead | kRightWrite | kRightAdmin, world_.UnixNow());
    return [this, nonce, has_map, map, grant] {
      if (process_ == nullptr || process_->nonce != nonce) return;
      if (grant.ok()) {
        process_->core->SetCredentials(grant->sealed, grant->namespace_secret, grant->cluster);
        process_->has_credentials = true;
        process_->ticket = grant->sealed;
      }
      // Answers may overtake each other: a watch that was opened anew shows an older map first.
      if (has_map && map.epoch != process_->core->map().epoch) {
        world_.log.Event("map", host_, map.epoch, map.nodes.size());
        if (map.epoch < process_->core->map().epoch) world_.log.Mark("map_went_back");
        process_->core->SetMap(map);
      }
      dirty_ = true;
    };
  });
  const Nanos next = process_->has_credentials ? 30 + world_.random.Below(150) : 20;
  world_.schedule.At(world_.clock.Now() + next * kMillisecond, [this, nonce] { ControlTurn(nonce); });
}

std::shared_ptr<SimClient::Call> SimClient::Begin(const char* kind, const SimChain& chain, Nanos deadline) {
  static constexpr Nanos kNone = 0;
  auto call = std::make_shared<Call>();
  call->kind = kind;
  call->number = world_.log.events();
  call->chain = &chain;
  call->begun = clock_.Now();
  call->deadline = deadline == kNone ? kDefaultDeadline : deadline;
  call->visible = world_.options.calm ? chain.visible : 0;
  calls_.push_back(call);
  ++calls_out_;
  dirty_ = true;
  return call;
}

void SimClient::End(Call& call) {
  if (++call.ended > 1) world_.log.Fail(host_ + ": a " + call.kind + " ended twice");
  const Nanos took = clock_.Now() - call.begun;
  if (took > call.deadline + call.deadline / 10 + kMillisecond) {
    world_.log.Fail(host_ + ": a " + call.kind + " with deadline " +
                    std::to_string(call.deadline / kMicrosecond) + " us took " +
                    std::to_string(took / kMicrosecond) + " us (F23)");
  }
  --calls_out_;
  std::erase_if(calls_, [&](const std::shared_ptr<Call>& other) { return other.get() == &call; });
  if (call.pages == nullptr) return;
  const std::string canary = call.pages->CheckCanaries();
  if (!canary.empty()) world_.log.Fail(host_ + ": " + call.kind + ": " + canary);
  call.pages->Retire();
  if (std::byte* buffer = call.pages->window_buffer(); buffer != nullptr) {
    // The next store may get the same memory at once. A dead process has no window any more.
    if (process_ != nullptr) process_->window->Free(buffer);
    return;
  }
  retired_.push_back({world_.clock.Now() + kRetiredFor, call.pages});
}

void SimClient::Check() {
  for (const std::shared_ptr<Call>& call : calls_) {
    const Nanos took = clock_.Now() - call->begun;
    if (took > call->deadline + call->deadline / 10 + 5 * kMillisecond) {
      world_.log.Fail(host_ + ": a " + call->kind + " is still out " + std::to_string(took / kMillisecond) +
                      " ms after it began, deadline " + std::to_string(call->deadline / kMillisecond) +
                      " ms (F23)");
    }
  }
  while (!retired_.empty() && retired_.front().until <= world_.clock.Now()) {
    const std::string changed = retired_.front().pages->CheckRetired();
    if (!changed.empty()) world_.log.Fail(host_ + ": " + changed);
    retired_.pop_front();
  }
}

void SimClient::CheckAllRetired() {
  for (Retired& retired : retired_) retired.until = 0;
  Check();
}

bool SimClient::Poll() {
  if (process_ == nullptr) return false;
  const bool due = dirty_ || process_->transport->HasWork() ||
                   clock_.ToSim(process_->core->NextWake()) <= world_.clock.Now();
  if (!due) return false;
  dirty_ = false;
  bool any = false;
  for (int i = 0; i < 64 && process_ != nullptr && process_->core->Poll(); ++i) any = true;
  return any;
}

Nanos SimClient::NextWake() const {
  if (process_ == nullptr) return kNever;
  if (dirty_ || process_->transport->HasWork()) return world_.clock.Now();
  return clock_.ToSim(process_->core->NextWake());
}

void SimClient::Settle() {
  settled_ = true;
  if (process_ == nullptr) return;
  while (!process_->plans.empty()) Release(process_->plans.size() - 1);
  dirty_ = true;
  TakeMarks();
}

void SimClient::TakeMarks() {
  for (const auto& [name, value] : process_->core->Counters()) {
    if (name.find("breaker_open") != std::string::npos) world_.log.Mark("breaker_opened", value);
    if (name.find("stale_plans") != std::string::npos) world_.log.Mark("stale_plan_refused", value);
    if (name.find("old_owner_asks") != std::string::npos) world_.log.Mark("old_owner_asked", value);
    if (name.find("fences") != std::string::npos) world_.log.Mark("client_fenced_a_peer", value);
    if (name.find("silent_peers") != std::string::npos) world_.log.Mark("silent_peer_cut", value);
    if (name.find("renews") != std::string::npos) world_.log.Mark("lease_renewed", value);
    if (name.find("window_put_bytes") != std::string::npos) world_.log.Mark("put_from_window", value);
    if (name.find("staged_put_bytes") != std::string::npos) world_.log.Mark("put_staged", value);
    if (name.find("inline_put_bytes") != std::string::npos) world_.log.Mark("put_inline", value);
    if (name.find("bad_frames") != std::string::npos && value != 0) {
      world_.log.Fail(host_ + " got " + std::to_string(value) + " replies that did not fit their request");
    }
  }
}

}  // namespace cistern
