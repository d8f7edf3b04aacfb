#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "core/arena.h"
#include "core/chain.h"
#include "core/check.h"
#include "core/random.h"
#include "transport/raw_socket_limit.h"
#include "transport/socket_transport.h"

// Verified payloads over SocketTransport between two processes, beside a raw socket of the same shape and
// memory. The node's work on a read (index, leases) is not in it: this is what the transport leaves for it.
namespace cistern {
namespace {

constexpr double kSeconds = 0.5;

double Now(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void WaitFor(const SocketTransport& transport) {
  pollfd ready{transport.WaitFd(), POLLIN, 0};
  poll(&ready, 1, 1000);
}

class Node final : public TransportHandler {
 public:
  Node(SocketTransport& transport, const RawSocketLimit& shape) : transport_(transport), shape_(shape) {
    absl::StatusOr<MemoryRegion> arena = MemoryRegion::Create("bench-arena", shape.arena_bytes, true);
    CISTERN_CHECK(arena.ok());
    arena_ = std::make_unique<MemoryRegion>(*std::move(arena));
    arena_->Prefault(0, arena_->bytes());
    payload_.resize(shape.batch);
    reply_.parts.resize(shape.batch);
  }
  absl::Status OnHello(PeerId, const Hello&, HelloAck&, std::vector<const MemoryRegion*>&) override {
    return absl::OkStatus();
  }
  void OnPeerUp(PeerId, const HelloAck&) override {}
  void OnPeerDown(PeerId, const absl::Status&) override { done = true; }
  absl::Status OnPayload(PeerId, const FrameHeader&, ByteView, PayloadPlan&) override {
    return absl::OkStatus();
  }
  void OnFrame(PeerId peer, const InFrame& frame) override {
    CISTERN_CHECK(request_.Decode(frame.body).ok());
    const size_t slots = shape_.arena_bytes / shape_.size;
    for (size_t i = 0; i < shape_.batch; ++i) {
      payload_[i] = {arena_->data() + random_.Below(slots) * shape_.size, shape_.size};
      reply_.parts[i].length = static_cast<uint32_t>(shape_.size);
    }
    body_.clear();
    reply_.Encode(body_);
    OutFrame out;
    out.type = FrameType::kPlanReply;
    out.request_id = frame.header.request_id;
    out.body = body_;
    out.payload = payload_;
    out.cookie = 1;
    CISTERN_CHECK(transport_.Send(peer, out).ok());
  }
  void OnSent(PeerId, uint64_t) override {}
  void OnPulled(PeerId, uint64_t, const PullResult&) override {}
  bool done = false;

 private:
  SocketTransport& transport_;
  const RawSocketLimit shape_;
  std::unique_ptr<MemoryRegion> arena_;
  std::vector<ConstSegment> payload_;
  PlanReply reply_;
  ChainRequest request_;
  Bytes body_;
  Random random_{1};
};

class Client final : public TransportHandler {
 public:
  Client(SocketTransport& transport, const RawSocketLimit& shape)
      : transport_(transport), shape_(shape), memory_(shape.destination_bytes, std::byte{1}) {
    request_.coords.resize(1);
    request_.blocks.resize(shape.batch);
    request_.runs.resize(1);
    request_.runs[0].count = static_cast<uint32_t>(shape.batch);
  }
  absl::Status OnHello(PeerId, const Hello&, HelloAck&, std::vector<const MemoryRegion*>&) override {
    return absl::OkStatus();
  }
  void OnPeerUp(PeerId peer, const HelloAck&) override { up = peer; }
  void OnPeerDown(PeerId, const absl::Status&) override { CISTERN_CHECK(false); }
  absl::Status OnPayload(PeerId, const FrameHeader&, ByteView, PayloadPlan& plan) override {
    const size_t slots = shape_.destination_bytes / shape_.size;
    for (uint32_t i = 0; i < shape_.batch; ++i) {
      plan.segments.push_back({memory_.data() + random_.Below(slots) * shape_.size, shape_.size});
      plan.pieces.push_back({shape_.size, i, 1});
    }
    return absl::OkStatus();
  }
  void OnFrame(PeerId, const InFrame& frame) override {
    CISTERN_CHECK(reply_.Decode(frame.body).ok());
    CISTERN_CHECK(frame.piece_crcs.size() == shape_.batch);
    ++replies;
  }
  void OnSent(PeerId, uint64_t) override {}
  void OnPulled(PeerId, uint64_t, const PullResult&) override {}
  void Ask() {
    body_.clear();
    request_.Encode(body_);
    OutFrame out;
    out.type = FrameType::kPlan;
    out.flags = kFlagInline | kFlagOneShot;
    out.request_id = ++asked;
    out.body = body_;
    CISTERN_CHECK(transport_.Send(up, out).ok());
  }
  PeerId up = 0;
  uint64_t asked = 0, replies = 0;

 private:
  SocketTransport& transport_;
  const RawSocketLimit shape_;
  std::vector<std::byte> memory_;
  ChainRequest request_;
  PlanReply reply_;
  Bytes body_;
  Random random_{2};
};

[[noreturn]] void ServeNode(const RawSocketLimit& shape, int announce) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  BootClock clock;
  std::unique_ptr<SocketTransport> transport = *SocketTransport::Create(clock);
  Node node(*transport, shape);
  transport->SetHandler(&node);
  const bool tcp = shape.family == RawSocketLimit::Family::kTcp;
  const std::string bound =
      *transport->Listen(tcp ? "tcp:127.0.0.1:0" : "unix:cistern-bench-" + std::to_string(getpid()));
  CISTERN_CHECK(write(announce, bound.data(), bound.size()) == static_cast<ssize_t>(bound.size()));
  while (!node.done) {
    if (!transport->Poll() && !shape.spin) WaitFor(*transport);
  }
  _exit(0);
}

RawSocketResult MeasureTransport(const RawSocketLimit& shape) {
  int pipe_fds[2];
  CISTERN_CHECK(pipe(pipe_fds) == 0);
  const pid_t child = fork();
  if (child == 0) ServeNode(shape, pipe_fds[1]);
  char address[128] = {};
  CISTERN_CHECK(read(pipe_fds[0], address, sizeof(address) - 1) > 0);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  BootClock clock;
  std::unique_ptr<SocketTransport> transport = *SocketTransport::Create(clock);
  Client client(*transport, shape);
  transport->SetHandler(&client);
  ConnectOptions options;
  options.hello.key_algorithm = kKeyAlgorithm;
  options.allow_map = false;
  CISTERN_CHECK(transport->Connect(address, options).ok());
  while (client.up == 0) transport->Poll();
  clockid_t child_clock;
  CISTERN_CHECK(clock_getcpuclockid(child, &child_clock) == 0);
  const auto cpu = [&] { return Now(CLOCK_PROCESS_CPUTIME_ID) + Now(child_clock); };
  RawSocketResult result;
  for (const double seconds : {kSeconds / 10, kSeconds}) {  // Warm up, then measure.
    const double begin = Now(), begin_cpu = cpu();
    const uint64_t before = client.replies;
    while (Now() - begin < seconds) {
      client.Ask();
      while (client.replies < client.asked) {
        if (!transport->Poll() && !shape.spin && client.replies < client.asked) WaitFor(*transport);
      }
    }
    const double gigabytes = static_cast<double>((client.replies - before) * shape.batch * shape.size) * 1e-9;
    result = {gigabytes / (Now() - begin), (cpu() - begin_cpu) / gigabytes};
  }
  transport.reset();
  waitpid(child, nullptr, 0);
  return result;
}

// Arguments: bytes a part, parts a request, 1 = spin, 1 = unix.
void SocketRead(benchmark::State& state) {
  RawSocketLimit shape;
  shape.size = static_cast<size_t>(state.range(0));
  shape.batch = static_cast<size_t>(state.range(1));
  shape.spin = state.range(2) != 0;
  shape.family = state.range(3) != 0 ? RawSocketLimit::Family::kUnix : RawSocketLimit::Family::kTcp;
  shape.seconds = kSeconds;
  for (auto _ : state) {
    const absl::StatusOr<RawSocketResult> limit = MeasureRawSocket(shape);
    CISTERN_CHECK(limit.ok());
    const RawSocketResult ours = MeasureTransport(shape);
    state.SetIterationTime(kSeconds);
    state.counters["gbps"] = ours.gbps;
    state.counters["limit"] = limit->gbps;
    state.counters["ratio"] = ours.gbps / limit->gbps;
    state.counters["GB_per_cpu_s"] = 1 / ours.cpu_s_per_gb;
    state.counters["limit_GB_per_cpu_s"] = 1 / limit->cpu_s_per_gb;
  }
}
BENCHMARK(SocketRead)
    ->ArgNames({"bytes", "batch", "spin", "unix"})
    ->ArgsProduct({{64 << 10, 256 << 10, 1 << 20, 4 << 20}, {1, 16}, {1, 0}, {0, 1}})
    ->Iterations(1)
    ->UseManualTime();

}  // namespace
}  // namespace cistern
