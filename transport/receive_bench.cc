#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "transport/frame_reader.h"
#include "transport/socket_address.h"
#include "transport/unique_fd.h"

// What a receive from TCP over loopback takes by where it begins, beside the stream's own position
// (FrameReader::Landing). On Zen 3 and 4 those 1 to 15 bytes behind it are slow; elsewhere all are alike.
namespace cistern {
namespace {

constexpr size_t kReceives = 8;

struct Pair {
  UniqueFd from, to;
};

Pair Connected() {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof(address);
  Pair out{UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), UniqueFd()};
  if (bind(listener.get(), raw, bytes) == 0 && listen(listener.get(), 1) == 0 &&
      getsockname(listener.get(), raw, &bytes) == 0 && connect(out.from.get(), raw, bytes) == 0) {
    out.to = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    TuneTcp(out.from.get());
    TuneTcp(out.to.get());
  }
  return out;
}

bool All(ssize_t (*move)(int, void*, size_t), int fd, std::byte* at, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t moved = move(fd, at + done, bytes - done);
    if (moved <= 0) return false;
    done += static_cast<size_t>(moved);
  }
  return true;
}

// state.range(0): bytes behind the stream's position, modulo a page.
void Receive(benchmark::State& state) {
  const Pair pair = Connected();
  constexpr size_t kPage = 4096;
  struct alignas(kPage) Scratch {
    std::array<std::byte, kReceiveScratchBytes + kPage> bytes;
  };
  const auto scratch = std::make_unique<Scratch>();
  std::vector<std::byte> data(kReceives * kReceiveScratchBytes);
  if (pair.to.get() < 0) return state.SkipWithError("no connection over loopback");
  const auto behind = static_cast<size_t>(state.range(0));
  const auto send_some = [](int fd, void* at, size_t bytes) { return send(fd, at, bytes, MSG_NOSIGNAL); };
  const auto receive_some = [](int fd, void* at, size_t bytes) { return recv(fd, at, bytes, 0); };
  for (auto _ : state) {
    state.PauseTiming();
    bool ok = All(send_some, pair.from.get(), data.data(), data.size());
    state.ResumeTiming();
    for (size_t i = 0; i < kReceives; ++i) {
      ok = ok && All(receive_some, pair.to.get(), scratch->bytes.data() + behind, kReceiveScratchBytes);
    }
    if (!ok) return state.SkipWithError("the connection broke");
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * data.size()));
}
BENCHMARK(Receive)->Arg(0)->Arg(1)->Arg(8)->Arg(15)->Arg(16)->Arg(64)->Arg(2048);

}  // namespace
}  // namespace cistern
