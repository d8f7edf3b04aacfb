#include <atomic>
#include <cstdlib>
#include <new>

#include "client/core/testing/client_fixture.h"

namespace {
std::atomic<uint64_t> g_allocations{0};
bool g_counting = false;  // Only the core's own allocations count, not those of the fake transport.
}  // namespace

// NOLINTBEGIN: replacing the global operators is the point. GCC 12 sees only one half of the pair where it
// inlines the other.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(size_t bytes) {
  if (g_counting) g_allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = std::malloc(bytes);
  if (p == nullptr) std::abort();
  return p;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#pragma GCC diagnostic pop
// NOLINTEND

namespace cistern {
namespace {

class Counting {
 public:
  explicit Counting(bool on) : before_(g_counting) { g_counting = on; }
  ~Counting() { g_counting = before_; }

 private:
  bool before_;
};

// Stops the count inside the fake transport and goes on with it inside the core's handler.
class CountedTransport final : public Transport, public TransportHandler {
 public:
  explicit CountedTransport(FakeTransport& inner) : inner_(inner) {}
  void SetHandler(TransportHandler* handler) override {
    handler_ = handler;
    inner_.SetHandler(this);
  }
  absl::StatusOr<PeerId> Connect(const std::string& a, const ConnectOptions& o) override {
    const Counting off(false);
    return inner_.Connect(a, o);
  }
  absl::Status Send(PeerId peer, const OutFrame& frame) override {
    const Counting off(false);
    return inner_.Send(peer, frame);
  }
  absl::Status Pull(PeerId peer, const PullRequest& request) override {
    const Counting off(false);
    return inner_.Pull(peer, request);
  }
  bool Cancel(PeerId peer, uint64_t id) override { return inner_.Cancel(peer, id); }
  void Fence(PeerId peer, const absl::Status& why) override { inner_.Fence(peer, why); }
  const PeerPath* Path(PeerId peer) const override { return inner_.Path(peer); }
  bool Poll() override {
    const Counting off(false);
    return inner_.Poll();
  }
  int WaitFd() const override { return -1; }

  absl::Status OnHello(PeerId p, const Hello& h, HelloAck& a, std::vector<const MemoryRegion*>& r) override {
    return handler_->OnHello(p, h, a, r);
  }
  void OnPeerUp(PeerId peer, const HelloAck& ack) override { handler_->OnPeerUp(peer, ack); }
  void OnPeerDown(PeerId peer, const absl::Status& why) override { handler_->OnPeerDown(peer, why); }
  absl::Status OnPayload(PeerId peer, const FrameHeader& h, ByteView body, PayloadPlan& plan) override {
    plan.pieces.reserve(256);  // A transport keeps its plan from frame to frame.
    plan.segments.reserve(512);
    const Counting on(true);
    return handler_->OnPayload(peer, h, body, plan);
  }
  void OnFrame(PeerId peer, const InFrame& frame) override {
    const Counting on(true);
    handler_->OnFrame(peer, frame);
  }
  void OnSent(PeerId peer, uint64_t cookie) override { handler_->OnSent(peer, cookie); }
  void OnPulled(PeerId peer, uint64_t id, const PullResult& result) override {
    const Counting on(true);
    handler_->OnPulled(peer, id, result);
  }

 private:
  FakeTransport& inner_;
  TransportHandler* handler_ = nullptr;
};

void WarmHitPathAllocatesNothing(bool one_sided) {
  struct Fixture : ClientFixture {
    void TestBody() override {}
    using ClientFixture::AddNode;
    using ClientFixture::clock_;
    using ClientFixture::coords_;
    using ClientFixture::Fill;
    using ClientFixture::MakeKeys;
    using ClientFixture::MakePages;
    using ClientFixture::map_;
    using ClientFixture::nodes_;
    using ClientFixture::options_;
    using ClientFixture::random_;
    using ClientFixture::Spec;
    using ClientFixture::transport_;
  } f;
  f.AddNode("node-1");
  f.AddNode("node-2");
  for (const auto& node : f.nodes_) node->one_sided = one_sided;
  const auto keys = f.MakeKeys(64);
  f.Fill(keys, 64);
  CountedTransport transport(f.transport_);
  ClientCore core(f.options_, f.clock_, transport, f.random_);
  core.SetCredentials("ticket", {}, {});
  core.SetMap(f.map_);
  auto pages = f.MakePages(64);
  const CallSpec spec = f.Spec(keys);
  bool done = false;
  uint32_t ok = 0;
  PlanHandle plan = 0;
  const auto round = [&] {
    done = false;
    core.Fetch(spec, pages.view(), [&](const LoadOutcome& o) {
      done = true;
      for (const PartResult r : o.pages) ok += r == PartResult::kOk;
    });
    while (!done) core.Poll();
    done = false;
    core.Lookup(spec, [&](const LookupOutcome& o) { done = o.blocks == 64; });
    while (!done) core.Poll();
    done = false;
    core.Plan(spec, [&](const PlanOutcome& o) {
      done = true;
      plan = o.plan;
    });
    while (!done) core.Poll();
    done = false;
    core.Load(plan, 0, pages.view(), {}, 0, [&](const LoadOutcome& o) { done = o.pages.size() == 64; });
    while (!done) core.Poll();
    core.Release(plan);
    while (core.Poll()) {
    }
  };
  for (int i = 0; i < 40; ++i) round();
  ok = 0;
  g_allocations = 0;  // Handlers counted while warming up, too.
  {
    const Counting on(true);
    for (int i = 0; i < 20; ++i) round();
  }
  EXPECT_EQ(ok, 20u * 64);
  EXPECT_EQ(g_allocations.load(), 0u);
}

TEST(ClientAlloc, WarmHitPathAllocatesNothingOnOneSidedPaths) { WarmHitPathAllocatesNothing(true); }
TEST(ClientAlloc, WarmHitPathAllocatesNothingWithInlinePayloads) { WarmHitPathAllocatesNothing(false); }

}  // namespace
}  // namespace cistern
