// Checks a DeviceArena by itself: standard library alone, so it builds on a machine with nothing but CUDA.
//   device_arena_check host|N [MIB]
// Prints one line a check; exits 0 when all hold, 1 else, 2 when there is no such device.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "gpu/device_arena.h"

namespace {

using cistern::DeviceArena;
using cistern::DeviceCopyDone;

constexpr uint32_t kPart = 1u << 20;
int failures = 0;

void Check(bool holds, const char* what) {
  std::printf("%s %s\n", holds ? "ok  " : "FAIL", what);
  failures += holds ? 0 : 1;
}

uint32_t Crc32c(const std::byte* data, size_t bytes) {
  static const auto table = [] {
    std::vector<uint32_t> out(256);
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
      out[i] = value;
    }
    return out;
  }();
  uint32_t crc = ~0u;
  for (size_t i = 0; i < bytes; ++i) crc = table[(crc ^ static_cast<uint32_t>(data[i])) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::vector<std::byte> Pattern(uint64_t seed, size_t bytes) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(out.data() + i, &word, 8);
  }
  return out;
}

// Polls until `count` copies are done; false when one failed or none ended for 30 s.
bool Drain(DeviceArena& arena, size_t count) {
  std::vector<DeviceCopyDone> done;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (done.size() < count && std::chrono::steady_clock::now() < until) arena.Poll(done);
  bool ok = done.size() == count;
  for (size_t i = 0; i < done.size(); ++i) {
    ok &= done[i].ok;
    if (i > 0) ok &= done[i].copy > done[i - 1].copy;
  }
  return ok;
}

// Every place of the arena, a part each, with bytes that name the place: in, out, compared by checksum.
void RoundTrip(DeviceArena& arena) {
  const uint64_t parts = arena.bytes() / kPart;
  std::vector<std::vector<std::byte>> held;
  std::vector<uint32_t> crcs(parts);
  bool copied = true;
  for (uint64_t i = 0; i < parts;) {
    held.clear();
    for (uint32_t k = 0; k < 16 && i < parts; ++k, ++i) {
      held.push_back(Pattern(i, kPart));
      crcs[i] = Crc32c(held.back().data(), kPart);
      copied &= arena.CopyIn(i * kPart, held.back().data(), kPart) != 0;
    }
    copied &= Drain(arena, held.size());
  }
  Check(copied, "copies in");
  bool same = true, read = true;
  std::vector<std::byte> out(kPart);
  for (uint64_t i = parts; i-- > 0;) {
    if (i % 2 == 0) {
      read &= arena.ReadNow(i * kPart, out.data(), kPart);
    } else {
      read &= arena.CopyOut(i * kPart, out.data(), kPart) != 0 && Drain(arena, 1);
    }
    same &= Crc32c(out.data(), kPart) == crcs[i];
  }
  Check(read, "copies out");
  Check(same, "every part has its checksum");
}

// Copies are in the order of the stream: what is written over a place last is what is read.
void Order(DeviceArena& arena) {
  const auto a = Pattern(1001, kPart), b = Pattern(1002, kPart);
  std::vector<std::byte> first(kPart), second(kPart);
  bool started = arena.CopyIn(0, a.data(), kPart) != 0;
  started &= arena.CopyOut(0, first.data(), kPart) != 0;
  started &= arena.CopyIn(0, b.data(), kPart) != 0;
  started &= arena.CopyOut(0, second.data(), kPart) != 0;
  Check(started && Drain(arena, 4) && first == a && second == b, "copies keep their order");
}

void Bounds(DeviceArena& arena) {
  std::vector<std::byte> bytes(kPart);
  Check(arena.CopyIn(arena.bytes() - kPart + 1, bytes.data(), kPart) == 0, "no copy reaches outside");
  Check(!arena.ReadNow(arena.bytes(), bytes.data(), 1), "no read reaches outside");
  uint32_t started = 0;
  while (started < 2 * cistern::kDeviceCopiesMax && arena.CopyIn(0, bytes.data(), kPart) != 0) ++started;
  Check(started == cistern::kDeviceCopiesMax, "copies in flight are bounded");
  Check(Drain(arena, started), "all that were started end");
}

void Speed(DeviceArena& arena, bool pinned) {
  static std::vector<std::byte> bytes = Pattern(7, kPart);  // Outlives the arena, which may have it pinned.
  if (pinned && !arena.PinHost(bytes.data(), kPart)) {
    std::printf("info memory was not pinned: %s\n", arena.error().c_str());
    return;
  }
  for (const bool in : {true, false}) {
    const auto begin = std::chrono::steady_clock::now();
    constexpr int kRounds = 512;
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t at = static_cast<uint64_t>(i) % (arena.bytes() / kPart) * kPart;
      if ((in ? arena.CopyIn(at, bytes.data(), kPart) : arena.CopyOut(at, bytes.data(), kPart)) == 0) return;
      Drain(arena, 1);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::printf("info %s, one part of 1 MiB at a time, memory %spinned: %.2f GB/s\n", in ? "in" : "out",
                pinned ? "" : "not ", kRounds * 1.048576e-3 / seconds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "host";
  const uint64_t bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 64) << 20;
  std::string error;
  const std::unique_ptr<DeviceArena> arena =
      device == "host" ? cistern::MakeHostArena(bytes, error)
                       : cistern::MakeCudaArena(std::atoi(device.c_str()), bytes, error);
  if (arena == nullptr) {
    std::fprintf(stderr, "no arena on device %s: %s\n", device.c_str(), error.c_str());
    return 2;
  }
  std::printf("device %s, %llu MiB\n", arena->Describe().c_str(),
              static_cast<unsigned long long>(bytes >> 20));
  RoundTrip(*arena);
  Order(*arena);
  Bounds(*arena);
  Speed(*arena, false);
  Speed(*arena, true);
  std::printf("%s\n", failures == 0 ? "all checks hold" : "checks failed");
  return failures == 0 ? 0 : 1;
}
