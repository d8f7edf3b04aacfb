// What clients of a simulation do, and how its results are judged.
#include <algorithm>
#include <string_view>
#include <utility>

#include "core/placement.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_client.h"

namespace cistern {
namespace {

constexpr size_t kCallsOutMax = 12;
constexpr size_t kPlansHeldMax = 6;
constexpr uint32_t kPagesMax = 24;

// The workload breaks no limit, so some results are never right; without faults only a few are.
bool MayHappen(PartResult result, bool reading, const SimOptions& options) {
  const bool calm = options.calm;
  switch (result) {
    case PartResult::kOk:
    case PartResult::kMiss:
    case PartResult::kExists:
    case PartResult::kLeaseExpired:
    case PartResult::kCancelled:
      return true;
    case PartResult::kCorrupt:
      // Where bits flip on the way to nodes alone, a reader that sees a wrong sum was given a slot that a
      // lease should have kept, or one that a put should not have made visible.
      return !calm && (!reading || options.read_flips);
    case PartResult::kStale:
    case PartResult::kNoSpace:
    case PartResult::kBusy:
    case PartResult::kDeadline:
    case PartResult::kPeerGone:
    case PartResult::kBreakerOpen:
      return !calm;
    case PartResult::kInvalid:
      // A PUT that comes again while its bytes are fetched is refused, perhaps before the first is answered.
      return !calm && !reading && (options.faults & kFaultTwice) != 0;
    default:
      return false;
  }
}

}  // namespace

CallSpec SimClient::Spec(const SimChain& chain, uint32_t blocks, Nanos deadline) const {
  const SimLayout& layout = LayoutOf(chain);
  CallSpec spec;
  spec.chain.layout = layout.id;
  spec.chain.part_bytes = layout.parts.bytes.front();
  spec.chain.blocks = absl::MakeConstSpan(chain.blocks).subspan(0, blocks);
  spec.coords = layout.parts.coords;
  if (layout.groups != nullptr) spec.coord_bytes = layout.parts.bytes;
  spec.deadline = deadline;
  return spec;
}

Nanos SimClient::DrawDeadline() {
  if (world_.options.calm) return 2 * kSecond;
  if (world_.random.Chance(0.2)) return 0;
  return (10 + static_cast<Nanos>(world_.random.Below(1500))) * kMillisecond;
}

void SimClient::Act() {
  if (process_ == nullptr || settled_ || calls_out_ >= kCallsOutMax) return;
  Random& random = world_.random;
  const SimChain& chain = chains_.chain(random.Below(chains_.size()));
  const auto blocks = static_cast<uint32_t>(chain.blocks.size());
  if (LayoutOf(chain).groups != nullptr && random.Chance(0.5)) {
    if (random.Chance(0.5)) return StoreTail(chain);
    return PlanGroupsOf(chain);
  }
  switch (random.Below(12)) {
    case 0:
      return Lookup(chain);
    case 1:
    case 2:
    case 3:
      return Plan(chain);
    case 4:
    case 5:
      return Load();
    case 6:
      if (!process_->plans.empty()) Release(random.Below(process_->plans.size()));
      return;
    case 7:
    case 8:
    case 9: {
      // Chains are stored from the front, mostly, or the rest could never hit.
      const uint32_t first = random.Chance(0.8) ? 0 : static_cast<uint32_t>(random.Below(blocks));
      const uint32_t most = std::min(blocks - first, kPagesMax);
      return Store(chain, first, 1 + static_cast<uint32_t>(random.Below(most)), DrawDeadline(), nullptr);
    }
    default:
      return Fetch(chain, 1 + static_cast<uint32_t>(random.Below(std::min(blocks, kPagesMax))),
                   DrawDeadline(), nullptr);
  }
}

void SimClient::MaybeCancel(OpId op) {
  // A cancel may cut the peer off, and with it what other calls have there: not in calm runs.
  if (settled_ || world_.options.calm || !world_.random.Chance(0.1)) return;
  const std::shared_ptr<Call> call = calls_.back();
  const uint64_t nonce = process_->nonce;
  const Nanos at = world_.clock.Now() + static_cast<Nanos>(world_.random.Below(2 * kMillisecond));
  world_.schedule.At(at, [this, op, nonce, call] {
    if (process_ == nullptr || process_->nonce != nonce || call->ended != 0) return;
    world_.log.Event("cancel", host_, call->number);
    call->cancelled = true;
    process_->core->Cancel(op);
    dirty_ = true;
  });
}

void SimClient::Lookup(const SimChain& chain) {
  const auto blocks = static_cast<uint32_t>(chain.blocks.size());
  const Nanos deadline = DrawDeadline();
  const std::shared_ptr<Call> call = Begin("lookup", chain, deadline);
  call->asked = blocks;
  world_.log.Event("lookup", host_, call->number, blocks);
  const OpId op =
      process_->core->Lookup(Spec(chain, blocks, deadline), [this, call](const LookupOutcome& out) {
        world_.log.Event("looked up", host_, call->number, out.blocks, PartResultName(out.stopped_by));
        JudgeHit(*call, out.blocks, out.stopped_by);
        End(*call);
      });
  MaybeCancel(op);
}

void SimClient::Plan(const SimChain& chain) {
  if (process_->plans.size() >= kPlansHeldMax) return Release(0);
  const auto blocks = static_cast<uint32_t>(chain.blocks.size());
  const Nanos deadline = DrawDeadline();
  const std::shared_ptr<Call> call = Begin("plan", chain, deadline);
  call->asked = blocks;
  world_.log.Event("plan", host_, call->number, blocks);
  const uint64_t nonce = process_->nonce;
  const OpId op =
      process_->core->Plan(Spec(chain, blocks, deadline), [this, call, nonce](const PlanOutcome& out) {
        world_.log.Event("planned", host_, call->number, out.blocks, PartResultName(out.stopped_by));
        JudgeHit(*call, out.blocks, out.stopped_by);
        if ((out.plan != 0) != (out.blocks != 0))
          world_.log.Fail(host_ + ": a plan handle without blocks, or blocks without one");
        // A destroyed core takes its plans along.
        if (out.plan != 0 && process_ != nullptr && process_->nonce == nonce) {
          process_->plans.push_back({out.plan, call->chain, out.blocks});
        }
        End(*call);
      });
  MaybeCancel(op);
}

void SimClient::Release(size_t index) {
  const HeldPlan held = process_->plans[index];
  process_->plans.erase(process_->plans.begin() + static_cast<ptrdiff_t>(index));
  world_.log.Event("release", host_, held.blocks);
  process_->core->Release(held.plan);
  dirty_ = true;
}

void SimClient::Load() {
  Random& random = world_.random;
  if (process_->plans.empty()) return;
  const HeldPlan held = process_->plans[random.Below(process_->plans.size())];
  const auto first = static_cast<uint32_t>(random.Below(held.blocks));
  const auto count = 1 + static_cast<uint32_t>(random.Below(std::min(held.blocks - first, kPagesMax)));
  StoredParts parts = LayoutOf(*held.chain).parts;
  if (parts.coords.size() > 1 && random.Chance(0.5)) {
    parts.coords.resize(1 + random.Below(parts.coords.size()));
    parts.bytes.resize(parts.coords.size());
  }
  const Nanos deadline = DrawDeadline();
  const std::shared_ptr<Call> call = Begin("load", *held.chain, deadline);
  call->asked = count;
  call->pages = std::make_shared<SimPages>(*held.chain, parts, first, count, random);
  call->pages->PoisonForLoad();
  world_.log.Event("load", host_, call->number, count);
  const uint64_t nonce = process_->nonce;
  const OpId op = process_->core->Load(
      held.plan, first, call->pages->view(), parts.coords, deadline,
      [this, call, held, first, nonce](const LoadOutcome& out) {
        JudgePages(*call, out.pages, out.bytes, false);
        for (size_t i = 0; i < out.pages.size(); ++i) {
          if (out.pages[i] == PartResult::kOk && process_ != nullptr && process_->nonce == nonce) {
            MarkOwner(held.plan, *held.chain, first + static_cast<uint32_t>(i));
          }
        }
        End(*call);
      });
  MaybeCancel(op);
}

void SimClient::MarkOwner(PlanHandle plan, const SimChain& chain, uint32_t block) {
  const ClusterMap& map = process_->core->map();
  const Placement placement(map);
  const std::string_view served_by = process_->core->PlanOwner(plan, block);
  if (placement.empty() || served_by.empty()) return;
  const BlockHash& run = chain.blocks[RunFirst(block, map.run_blocks_cap)].hash;
  if (placement.owners().owners[placement.Owner(run)].id != served_by) world_.log.Mark("old_owner_served");
}

void SimClient::Fetch(const SimChain& chain, uint32_t blocks, Nanos deadline,
                      std::function<void(bool)> done) {
  const std::shared_ptr<Call> call = Begin("fetch", chain, deadline);
  call->asked = blocks;
  call->visible = std::min(call->visible, blocks);
  const SimLayout& layout = LayoutOf(chain);
  call->pages = std::make_shared<SimPages>(chain, layout.parts, 0, blocks, world_.random);
  call->pages->PoisonForLoad();
  world_.log.Event("fetch", host_, call->number, blocks);
  const OpId op = process_->core->Fetch(Spec(chain, blocks, deadline), call->pages->view(),
                                        [this, call, done = std::move(done)](const LoadOutcome& out) {
                                          JudgePages(*call, out.pages, out.bytes, true);
                                          const auto ok =
                                              std::count(out.pages.begin(), out.pages.end(), PartResult::kOk);
                                          if (static_cast<uint64_t>(ok) > out.hit_blocks)
                                            world_.log.Fail(host_ + ": more OK pages than blocks hit");
                                          const bool all = static_cast<size_t>(ok) == call->asked;
                                          End(*call);
                                          if (done) done(all);
                                        });
  MaybeCancel(op);
}

void SimClient::Store(const SimChain& chain, uint32_t first, uint32_t count, Nanos deadline,
                      std::function<void(bool)> done) {
  const std::shared_ptr<Call> call = Begin("store", chain, deadline);
  call->asked = count;
  const SimLayout& layout = LayoutOf(chain);
  std::byte* buffer = nullptr;
  if (process_->window != nullptr && world_.random.Chance(0.4)) {
    buffer = static_cast<std::byte*>(process_->window->Allocate(SimPages::BytesFor(layout.parts, count)));
  }
  call->pages = std::make_shared<SimPages>(chain, layout.parts, first, count, world_.random, buffer);
  call->pages->FillWithContent();
  world_.log.Event("store", host_, call->number, count);
  const OpId op = process_->core->Store(
      Spec(chain, first + count, deadline), first, call->pages->const_view(),
      [this, call, first, done = std::move(done)](const StoreOutcome& out) {
        world_.log.Event("stored", host_, call->number, out.bytes);
        if (out.pages.size() != call->asked)
          world_.log.Fail(host_ + ": a store did not answer for every page (F11)");
        size_t good = 0;
        for (const PartResult result : out.pages) {
          world_.log.Event("page", host_, call->number, static_cast<uint64_t>(result));
          CountResult(result, "store");
          const bool there = result == PartResult::kOk || result == PartResult::kExists;
          if (there && world_.options.calm) {
            chains_.MarkVisible(*call->chain, first + static_cast<uint32_t>(&result - out.pages.data()), 1);
          }
          good += there;
        }
        const bool all = good == call->asked;
        End(*call);  // The source is overwritten at once: whoever still reads it stores garbage and is found
                     // out.
        if (done) done(all);
      });
  MaybeCancel(op);
}

void SimClient::StoreAll(const SimChain& chain, std::function<void(bool)> done) {
  if (process_ == nullptr) return done(false);
  Store(chain, 0, static_cast<uint32_t>(chain.blocks.size()), kSecond, std::move(done));
}

void SimClient::FetchAll(const SimChain& chain, std::function<void(bool)> done) {
  if (process_ == nullptr) return done(false);
  Fetch(chain, static_cast<uint32_t>(chain.blocks.size()), kSecond, std::move(done));
}

void SimClient::DropAll(const std::string& node) {
  if (process_ == nullptr) return;
  DropRequest drop;
  drop.all = true;
  static const SimChain kNoChain;
  const std::shared_ptr<Call> call = Begin("drop", kNoChain, kSecond);
  world_.log.Event("drop", host_, call->number, 0, node);
  process_->core->Drop(node, 0, drop, kSecond, [this, call](const AdminOutcome& out) {
    world_.log.Event("dropped", host_, call->number, static_cast<uint64_t>(out.result));
    End(*call);
  });
}

void SimClient::JudgeHit(const Call& call, uint32_t hit_blocks, PartResult stopped_by) {
  CountResult(stopped_by, call.kind);
  if (hit_blocks > call.asked) world_.log.Fail(host_ + ": a hit longer than what was asked");
  if (hit_blocks == call.asked && stopped_by != PartResult::kOk)
    world_.log.Fail(host_ + ": a whole hit with a reason");
  if (hit_blocks < call.asked && stopped_by == PartResult::kOk)
    world_.log.Fail(host_ + ": a part hit without a reason");
  if (hit_blocks < call.visible && !call.cancelled) {
    world_.log.Fail(host_ + ": a " + call.kind + " hit " + std::to_string(hit_blocks) + " blocks of " +
                    std::to_string(call.visible) +
                    " visible ones: " + std::string(PartResultName(stopped_by)));
  }
}

void SimClient::JudgePages(Call& call, absl::Span<const PartResult> results, uint64_t bytes, bool leading) {
  world_.log.Event("loaded", host_, call.number, bytes);
  if (results.size() != call.asked) world_.log.Fail(host_ + ": a load did not answer for every page (F11)");
  for (uint32_t i = 0; i < results.size() && i < call.asked; ++i) {
    world_.log.Event("page", host_, call.number, static_cast<uint64_t>(results[i]));
    CountResult(results[i], call.kind);
    if (results[i] == PartResult::kOk && !call.pages->IsRight(i)) {
      world_.log.Fail(host_ + ": WRONG BYTES in page " + std::to_string(i) + " of a " + call.kind);
    }
    if (leading && i < call.visible && results[i] != PartResult::kOk && !call.cancelled) {
      world_.log.Fail(host_ + ": page " + std::to_string(i) + " of a fetch is " +
                      std::string(PartResultName(results[i])) + " though its block is visible");
    }
  }
}

void SimClient::CountResult(PartResult result, const char* kind) {
  const bool reading = std::string_view(kind) != "store";
  if (!MayHappen(result, reading, world_.options)) {
    world_.log.Fail(host_ + ": a " + kind + " ended with " + std::string(PartResultName(result)));
    return;
  }
  world_.log.Mark(std::string(kind) + "_" + std::string(PartResultName(result)));
}

}  // namespace cistern
