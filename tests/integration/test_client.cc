// A client that does on command what the `cistern` tool has no word for; integration tests drive it. Prints
// one JSON object a line and ends with its input. All commands take --router R, and --transport T,
// --blocks N, --part B and --deadline-ms D where they apply.
//
//   test_client loop                                fetches and stores what is missing, until input comes
//
//   test_client held                                stores, then fetches once per line; "check" looks at the
//                                                   memory of the last fetch instead
//
//   test_client leased --lease-ms L                 stores and plans, then loads under that plan once per
//   line, or as often as a number on it says
//   test_client writers --threads N --keys K --rounds R   everybody stores the same keys and reads them back
//
//   test_client batch --calls N --rounds R          so many calls out at once
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cistern/client.h"

namespace {

using cistern::Chain;
using cistern::Client;
using cistern::PageResult;
using Milliseconds = std::chrono::milliseconds;

struct Arguments {
  std::string command, router, transport = "auto", fabric_transports, fabric_devices, host_share;
  uint32_t blocks = 16, part = 65536, deadline_ms = 500, threads = 16, keys = 20, rounds = 10, calls = 512,
           seed = 1, lease_ms = 2000;
};

// The bytes of a block are a function of its key.
void Fill(const Chain& chain, uint32_t block, std::byte* out, size_t bytes) {
  uint64_t seed = 0;
  std::memcpy(&seed, chain.hash(block).data(), sizeof seed);
  for (size_t i = 0; i * 8 < bytes; ++i) {
    const uint64_t word = (seed | 1) * (2 * i + 1);
    std::memcpy(out + i * 8, &word, std::min<size_t>(8, bytes - i * 8));
  }
}
bool IsRight(const Chain& chain, uint32_t block, const std::byte* data, size_t bytes) {
  std::vector<std::byte> wanted(bytes);
  Fill(chain, block, wanted.data(), bytes);
  return std::memcmp(wanted.data(), data, bytes) == 0;
}

Chain MakeChain(Client& client, const Arguments& arguments, uint32_t number) {
  cistern::Layout layout;
  layout.model = "integration";
  layout.block_tokens = 16;
  layout.part_bytes = arguments.part;
  std::vector<uint32_t> tokens(arguments.blocks * layout.block_tokens);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<uint32_t>(i * 2654435761u + number * 97 + 1);
  auto chain = client.MakeChain(layout, tokens);
  if (!chain.ok()) {
    std::fprintf(stderr, "%s\n", chain.status().message().c_str());
    std::exit(2);
  }
  return chain.value();
}

// Memory of one chain's pages.
struct Pages {
  Pages(uint32_t blocks, size_t part) : part_bytes(part), memory(blocks * part) {}
  std::vector<cistern::Page> targets() {
    std::vector<cistern::Page> pages;
    for (size_t at = 0; at < memory.size(); at += part_bytes)
      pages.emplace_back(memory.data() + at, part_bytes);
    return pages;
  }
  std::vector<cistern::ConstPage> sources() const {
    std::vector<cistern::ConstPage> pages;
    for (size_t at = 0; at < memory.size(); at += part_bytes)
      pages.emplace_back(memory.data() + at, part_bytes);
    return pages;
  }
  void FillFor(const Chain& chain) {
    for (uint32_t i = 0; i < chain.blocks(); ++i) Fill(chain, i, memory.data() + i * part_bytes, part_bytes);
  }
  uint32_t Wrong(const Chain& chain, const std::vector<PageResult>& results) const {
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < results.size(); ++i) {
      wrong +=
          results[i] == PageResult::kOk && !IsRight(chain, i, memory.data() + i * part_bytes, part_bytes);
    }
    return wrong;
  }
  void Poison(int value) { std::memset(memory.data(), value, memory.size()); }
  bool IsAll(int value) const {
    for (const std::byte b : memory) {
      if (b != std::byte(value)) return false;
    }
    return true;
  }
  size_t part_bytes;
  std::vector<std::byte> memory;
};

std::unique_ptr<Client> ConnectOrExit(const Arguments& arguments) {
  cistern::ClientOptions options;
  options.router = arguments.router;
  options.transport = arguments.transport;
  options.fabric_transports = arguments.fabric_transports;
  options.fabric_devices = arguments.fabric_devices;
  options.lease_ttl = Milliseconds(arguments.lease_ms);
  options.host_share = arguments.host_share;
  auto client = Client::Connect(options);
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().message().c_str());
    std::exit(2);
  }
  return std::move(client.value());
}

std::string Results(const std::vector<PageResult>& results) {
  std::map<std::string, int> counts;
  for (const PageResult result : results) ++counts[cistern::PageResultName(result)];
  std::string text = "{";
  for (const auto& [name, count] : counts) {
    text += (text.size() > 1 ? ", \"" : "\"") + name + "\": " + std::to_string(count);
  }
  return text + "}";
}

// What was counted of parts that ranks hand each other, since the client began.
std::string Shares(const Client& client) {
  std::string text;
  for (const auto& [name, value] : client.Counters()) {
    if (name.starts_with("client_share_")) text += ", \"" + name.substr(7) + "\": " + std::to_string(value);
  }
  return text;
}

uint32_t FetchOnce(Client& client, const Chain& chain, Pages& pages, const Arguments& arguments) {
  pages.Poison(0x5a);
  const auto targets = pages.targets();
  cistern::CallOptions call;
  call.deadline = Milliseconds(arguments.deadline_ms);
  call.host_shared = !arguments.host_share.empty();
  const auto begin = std::chrono::steady_clock::now();
  const cistern::LoadReport report = client.FetchWait(chain, targets, call);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "{\"event\": \"fetch\", \"ok\": %u, \"asked\": %u, \"wrong\": %u, \"ms\": %.1f, \"pages\": %s%s}\n",
      report.ok_pages(), chain.blocks(), pages.Wrong(chain, report.pages), ms, Results(report.pages).c_str(),
      Shares(client).c_str());
  return report.ok_pages();
}

void StoreOnce(Client& client, const Chain& chain, Pages& pages, const Arguments& arguments) {
  pages.FillFor(chain);
  const auto sources = pages.sources();
  cistern::CallOptions call;
  call.deadline = Milliseconds(arguments.deadline_ms);
  const auto begin = std::chrono::steady_clock::now();
  const cistern::StoreReport report = client.StoreWait(chain, 0, sources, call);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  std::printf("{\"event\": \"store\", \"asked\": %u, \"ms\": %.1f, \"pages\": %s}\n", chain.blocks(), ms,
              Results(report.pages).c_str());
}

// Waits a moment, so that a loop's log stays short.
bool StdinReady() {
  pollfd in{0, POLLIN, 0};
  return poll(&in, 1, 5) > 0;
}

// Fetches, and stores what is missing, again and again.
int Loop(const Arguments& arguments) {
  const auto client = ConnectOrExit(arguments);
  const Chain chain = MakeChain(*client, arguments, arguments.seed);
  Pages pages(chain.blocks(), arguments.part);
  while (!StdinReady()) {
    if (FetchOnce(*client, chain, pages, arguments) < chain.blocks())
      StoreOnce(*client, chain, pages, arguments);
    std::fflush(stdout);
  }
  return 0;
}

// F23: a fetch that cannot end well, and whether anything lands in its memory afterwards.
int Held(const Arguments& arguments) {
  const auto client = ConnectOrExit(arguments);
  Chain chain = MakeChain(*client, arguments, arguments.seed);
  Pages pages(chain.blocks(), arguments.part);
  StoreOnce(*client, chain, pages, arguments);
  FetchOnce(*client, chain, pages, arguments);
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.starts_with("seed ")) {
      chain =
          MakeChain(*client, arguments, static_cast<uint32_t>(std::strtoul(line.c_str() + 5, nullptr, 10)));
    } else if (line == "store") {
      StoreOnce(*client, chain, pages, arguments);
    } else if (line == "check") {
      client->Poll();
      std::printf("{\"event\": \"check\", \"untouched\": %s}\n", pages.IsAll(0x77) ? "true" : "false");
    } else {
      FetchOnce(*client, chain, pages, arguments);
      pages.Poison(0x77);  // The call has ended: this memory is nobody's but ours.
    }
    std::fflush(stdout);
  }
  return 0;
}

// One plan, and loads under it for as long as its lease holds: what one-sided reads need the node for.
int Leased(const Arguments& arguments) {
  const auto client = ConnectOrExit(arguments);
  const Chain chain = MakeChain(*client, arguments, arguments.seed);
  Pages pages(chain.blocks(), arguments.part);
  pages.FillFor(chain);
  cistern::CallOptions call;
  call.deadline = Milliseconds(arguments.deadline_ms);
  // On a slow machine a connection may need more than one try.
  constexpr int kTriesMax = 100;
  auto hit = client->PlanWait(chain, call);
  for (int i = 0; i < kTriesMax && (!hit.ok() || hit.value().blocks() < chain.blocks()); ++i) {
    if (i > 0) ::poll(nullptr, 0, 200);
    (void)client->StoreWait(chain, 0, pages.sources(), call);
    hit = client->PlanWait(chain, call);
  }
  std::printf("{\"event\": \"plan\", \"planned\": %u}\n", hit.ok() ? hit.value().blocks() : 0);
  std::fflush(stdout);
  if (!hit.ok() || hit.value().blocks() == 0) return 1;
  std::string line;
  while (std::getline(std::cin, line)) {
    const int times = std::max(1, std::atoi(line.c_str()));
    uint32_t ok = 0, wrong = 0;
    cistern::LoadReport report;
    for (int i = 0; i < times; ++i) {
      pages.Poison(0x5a);
      report = client->LoadWait(hit.value(), 0, pages.targets(), call);
      ok += report.ok_pages();
      wrong += pages.Wrong(chain, report.pages);
    }
    std::printf("{\"event\": \"load\", \"ok\": %u, \"asked\": %u, \"wrong\": %u, \"pages\": %s}\n", ok,
                chain.blocks() * times, wrong, Results(report.pages).c_str());
    std::fflush(stdout);
  }
  return 0;
}

// F20: many writers of the same keys; a key that exists is there with all its bytes.
int Writers(const Arguments& arguments) {
  const auto client = ConnectOrExit(arguments);
  std::atomic<uint64_t> ok{0}, exists{0}, other{0}, missing{0}, wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < arguments.threads; ++t) {
    threads.emplace_back([&, t] {
      Arguments mine = arguments;
      mine.blocks = 4;
      Pages pages(mine.blocks, mine.part);
      cistern::CallOptions call;
      call.deadline = Milliseconds(20'000);  // F20 asks for outcomes, not for speed.
      for (uint32_t i = 0; i < arguments.rounds * arguments.keys; ++i) {
        const uint32_t key = (i * 7 + t * 3) % arguments.keys;
        const Chain chain = MakeChain(*client, mine, key + 1000);
        pages.FillFor(chain);
        const auto sources = pages.sources();
        for (const PageResult result : client->StoreWait(chain, 0, sources, call).pages) {
          (result == PageResult::kOk ? ok : result == PageResult::kExists ? exists : other)++;
        }
        pages.Poison(0x5a);
        const auto targets = pages.targets();
        const cistern::LoadReport read = client->FetchWait(chain, targets, call);
        missing += chain.blocks() - read.ok_pages();
        wrong += pages.Wrong(chain, read.pages);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("{\"ok\": %lu, \"exists\": %lu, \"other\": %lu, \"missing\": %lu, \"wrong\": %lu}\n", ok.load(),
              exists.load(), other.load(), missing.load(), wrong.load());
  return 0;
}

// F29: so many batch calls out at one time, of all kinds.
int Batch(const Arguments& arguments) {
  const auto client = ConnectOrExit(arguments);
  uint64_t ended = 0, ok_pages = 0, wrong = 0, begun = 0;
  std::map<std::string, uint64_t> results;
  cistern::CallOptions call;
  call.deadline = Milliseconds(30'000);
  const auto count = [&](const std::vector<PageResult>& pages) {
    for (const PageResult page : pages) ++results[cistern::PageResultName(page)];
  };
  for (uint32_t round = 0; round < arguments.rounds; ++round) {
    struct Out {
      Chain chain;
      Pages pages;
    };
    std::vector<std::unique_ptr<Out>> out;
    for (uint32_t i = 0; i < arguments.calls; ++i) {
      const Chain chain = MakeChain(*client, arguments, 5000 + i % 64);
      out.push_back(std::make_unique<Out>(Out{chain, Pages(chain.blocks(), arguments.part)}));
      Out& mine = *out.back();
      ++begun;
      if (i % 3 == 0) {
        mine.pages.FillFor(chain);
        client->Store(chain, 0, mine.pages.sources(), call, [&](cistern::StoreReport report) {
          ++ended;
          count(report.pages);
        });
      } else if (i % 3 == 1) {
        client->Fetch(chain, mine.pages.targets(), call, [&](cistern::LoadReport report) {
          ++ended;
          ok_pages += report.ok_pages();
          wrong += mine.pages.Wrong(mine.chain, report.pages);
          count(report.pages);
        });
      } else {
        client->Lookup(chain, call, [&](cistern::Status, uint32_t) { ++ended; });
      }
    }
    while (ended < begun) {
      if (client->Poll()) continue;
      pollfd ready{client->event_fd(), POLLIN, 0};
      poll(&ready, 1, 1000);
    }
  }
  std::string text;
  for (const auto& [name, times] : results) {
    text += (text.empty() ? "\"" : ", \"") + name + "\": " + std::to_string(times);
  }
  std::printf("{\"calls\": %lu, \"ended\": %lu, \"ok_pages\": %lu, \"wrong\": %lu, \"pages\": {%s}}\n", begun,
              ended, ok_pages, wrong, text.c_str());
  return 0;
}

bool Parse(int argc, char** argv, Arguments& out) {
  if (argc < 2) return false;
  out.command = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    const std::map<std::string, uint32_t*> numbers = {
        {"--blocks", &out.blocks}, {"--part", &out.part},     {"--deadline-ms", &out.deadline_ms},
        {"--keys", &out.keys},     {"--rounds", &out.rounds}, {"--threads", &out.threads},
        {"--calls", &out.calls},   {"--seed", &out.seed},     {"--lease-ms", &out.lease_ms}};
    const std::map<std::string, std::string*> words = {{"--router", &out.router},
                                                       {"--host-share", &out.host_share},
                                                       {"--transport", &out.transport},
                                                       {"--fabric-transports", &out.fabric_transports},
                                                       {"--fabric-devices", &out.fabric_devices}};
    if (words.count(name) != 0) {
      *words.at(name) = value;
    } else if (numbers.count(name) != 0) {
      *numbers.at(name) = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    } else {
      return false;
    }
  }
  return argc % 2 == 0 && !out.router.empty();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  const std::map<std::string, int (*)(const Arguments&)> commands = {
      {"loop", Loop}, {"held", Held}, {"leased", Leased}, {"writers", Writers}, {"batch", Batch}};
  if (!Parse(argc, argv, arguments) || commands.count(arguments.command) == 0) {
    std::fprintf(stderr,
                 "usage: test_client loop|held|leased|writers|batch --router HOST:PORT [--NAME VALUE]...\n");
    return 2;
  }
  return commands.at(arguments.command)(arguments);
}
