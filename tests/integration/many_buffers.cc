// F59: loads into many distinct buffers, and what of this process is shared or registered meanwhile.
//   many_buffers --router R --transport T --loads N
// Prints {"loads", "ok", "wrong", "regions": {...}, "bytes": {...}}: mappings of shared memory (put window,
// arenas of nodes) before the client, at the most after its first load, at its end, and when it is gone.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cistern/client.h"

namespace {

constexpr uint32_t kPart = 4096;
constexpr uint32_t kBlocks = 64;
constexpr uint32_t kLookEvery = 5000;  // Loads between two looks at the mappings.

struct Mapped {
  uint64_t regions = 0, bytes = 0;
};

// Memory that other processes can see or register: memfd mappings.
Mapped Look() {
  Mapped all;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") == std::string::npos) continue;
    char* end = nullptr;
    const uint64_t begin = std::strtoull(line.c_str(), &end, 16);
    all.bytes += std::strtoull(end + 1, nullptr, 16) - begin;
    ++all.regions;
  }
  return all;
}

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

std::byte ByteOf(uint32_t block, size_t at) { return static_cast<std::byte>(block * 31 + at * 7 + at / 256); }

// Distinct memory for every load, given back to the system behind the loads: it is the addresses that count.
class Buffers {
 public:
  explicit Buffers(uint64_t count) : bytes_(count * kPart) {
    void* at =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) Fail("no address space");
    memory_ = static_cast<std::byte*>(at);
  }
  ~Buffers() { munmap(memory_, bytes_); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  std::byte* at(uint64_t index) { return memory_ + index * kPart; }
  void DropBefore(uint64_t index) { madvise(memory_, index * kPart, MADV_DONTNEED); }

 private:
  uint64_t bytes_;
  std::byte* memory_ = nullptr;
};

struct Outcome {
  uint64_t ok = 0, wrong = 0;
  Mapped first, most;
};

Outcome LoadAll(cistern::Client& client, uint64_t loads) {
  cistern::Layout layout;
  layout.model = "many-buffers";
  layout.block_tokens = 16;
  layout.part_bytes = kPart;
  const std::vector<uint32_t> tokens(size_t{kBlocks} * layout.block_tokens, 7);
  const auto chain = client.MakeChain(layout, tokens);
  if (!chain.ok()) Fail(chain.status().message());
  std::vector<std::byte> source(size_t{kBlocks} * kPart);
  std::vector<cistern::ConstPage> pages;
  for (uint32_t b = 0; b < kBlocks; ++b) {
    for (size_t i = 0; i < kPart; ++i) source[size_t{b} * kPart + i] = ByteOf(b, i);
    pages.emplace_back(&source[size_t{b} * kPart], kPart);
  }
  cistern::CallOptions call;
  call.deadline = std::chrono::seconds(20);
  const cistern::StoreReport stored = client.StoreWait(chain.value(), 0, pages, call);
  for (const cistern::PageResult page : stored.pages) {
    if (page != cistern::PageResult::kOk && page != cistern::PageResult::kExists)
      Fail(std::string("store: ") + cistern::PageResultName(page));
  }
  Buffers buffers(loads);
  Outcome outcome;
  cistern::Hit hit;
  for (uint64_t i = 0; i < loads; ++i) {
    if (i % kBlocks == 0) {  // A lease holds for two seconds.
      const auto planned = client.PlanWait(chain.value(), call);
      if (!planned.ok()) Fail(planned.status().message());
      hit = planned.value();
    }
    const auto block = static_cast<uint32_t>(i % kBlocks);
    const cistern::Page page(buffers.at(i), kPart);
    const cistern::LoadReport report = client.LoadWait(hit, block, std::span(&page, 1), call);
    if (report.ok_pages() == 1) {
      ++outcome.ok;
      outcome.wrong += std::memcmp(buffers.at(i), &source[size_t{block} * kPart], kPart) != 0;
    }
    if (i % kLookEvery == 0 || i + 1 == loads) {
      const Mapped now = Look();
      if (i == 0) outcome.first = now;
      outcome.most.regions = std::max(outcome.most.regions, now.regions);
      outcome.most.bytes = std::max(outcome.most.bytes, now.bytes);
      buffers.DropBefore(i);
    }
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  cistern::ClientOptions options;
  uint64_t loads = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--router") options.router = argv[i + 1];
    if (name == "--transport") options.transport = argv[i + 1];
    if (name == "--loads") loads = std::strtoull(argv[i + 1], nullptr, 10);
  }
  if (loads == 0) {
    std::fprintf(stderr, "usage: many_buffers --router R --transport T --loads N\n");
    return 2;
  }
  const Mapped before = Look();
  auto client = cistern::Client::Connect(options);
  if (!client.ok()) Fail(client.status().message());
  const Outcome outcome = LoadAll(*client.value(), loads);
  client.value().reset();
  const Mapped after = Look();
  const auto show = [&](uint64_t Mapped::*of) {
    std::printf("{\"before\": %lu, \"first\": %lu, \"most\": %lu, \"after\": %lu}", before.*of,
                outcome.first.*of, outcome.most.*of, after.*of);
  };
  std::printf("{\"loads\": %lu, \"ok\": %lu, \"wrong\": %lu, \"regions\": ", loads, outcome.ok,
              outcome.wrong);
  show(&Mapped::regions);
  std::printf(", \"bytes\": ");
  show(&Mapped::bytes);
  std::printf("}\n");
  return 0;
}
