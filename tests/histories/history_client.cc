// One client process of a history: threads that store and read the same few chains through one Client, and
// say of each call when it began, when it ended and what it gave. `checker.py` judges what all processes of a
// run said.
//
//   history_client --router R [--client N] [--seed S] [--threads T] [--chains K] [--deadline-ms D]
//   [--transport T]
//
// Standard input: "epoch E" makes later calls use weights epoch E; its end ends the program. Standard output,
// one JSON object a line:
//   {"event": "call", "id": .., "kind": "store"|"fetch"|"plan"|"load", "epoch": E, "chain": K, "at": ns,
//   "deadline": ns}
//   {"event": "return", "id": .., "at": ns, "pages": [["OK", value], ["MISS", 0], ..]}
// A value names the store that wrote the page; -1 is a page that no store of this key wrote as a whole.
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cistern/client.h"

namespace {

using cistern::PageResult;

constexpr uint32_t kBlocks = 4;
constexpr uint32_t kBlockTokens = 16;
constexpr size_t kPartBytes = 24'576;  // Some slabs hold several, and it is no power of two.
constexpr size_t kWords = kPartBytes / 8;

struct Arguments {
  std::string router, transport = "auto";
  uint32_t client = 1, seed = 1, threads = 3, chains = 12, deadline_ms = 500;
};

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct Key {
  uint64_t epoch = 0;
  uint32_t chain = 0;
};

uint64_t Word(const Key& key, uint32_t block, uint64_t value, size_t i) {
  return i == 0 ? value : Mix(value ^ Mix(key.epoch << 40 ^ uint64_t{key.chain} << 8 ^ block) ^ i);
}

class History {
 public:
  // `rest` are the fields that only this event has.
  void Say(const char* event, uint64_t id, int64_t at, const std::string& rest) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::printf("{\"event\": \"%s\", \"id\": %llu, \"at\": %lld%s}\n", event,
                static_cast<unsigned long long>(id), static_cast<long long>(at), rest.c_str());
    std::fflush(stdout);  // A killed process has said what it did.
  }

 private:
  std::mutex mutex_;
};

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Worker {
 public:
  Worker(cistern::Client& client, History& history, const Arguments& arguments, uint32_t number)
      : client_(client),
        history_(history),
        arguments_(arguments),
        random_(Mix(uint64_t{arguments.seed} << 32 ^ arguments.client << 8 ^ number)),
        next_id_((uint64_t{arguments.client} << 40) + (uint64_t{number} << 32)),
        memory_(kBlocks * kWords) {}

  void Step(uint64_t epoch) {
    random_ = Mix(random_);
    Key key{epoch, static_cast<uint32_t>(random_ % arguments_.chains)};
    if (key.epoch > 1 && random_ >> 60 == 0) --key.epoch;  // Some requests are late.
    const auto chain = ChainOf(key);
    const uint64_t kind = random_ >> 32 & 7;
    if (kind < 2) {
      Store(key, chain);
    } else if (kind < 5) {
      Fetch(key, chain);
    } else {
      PlanAndLoad(key, chain);
    }
  }

 private:
  cistern::Chain ChainOf(const Key& key) {
    cistern::Layout layout;
    layout.model = "history";
    layout.block_tokens = kBlockTokens;
    layout.part_bytes = kPartBytes;
    for (size_t i = 0; i < 8; ++i) layout.compute_digest[i] = static_cast<uint8_t>(key.epoch >> 8 * i);
    std::vector<uint32_t> tokens(kBlocks * kBlockTokens);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(Mix(key.chain) + i);
    auto chain = client_.MakeChain(layout, tokens);
    if (!chain.ok()) {
      std::fprintf(stderr, "history_client: %s\n", chain.status().message().c_str());
      std::exit(2);
    }
    return chain.value();
  }

  uint64_t Call(const char* kind, const Key& key) {
    const uint64_t id = next_id_++;
    const int64_t now = Now();
    char rest[160];
    std::snprintf(rest, sizeof rest, ", \"kind\": \"%s\", \"epoch\": %llu, \"chain\": %u, \"deadline\": %lld",
                  kind, static_cast<unsigned long long>(key.epoch), key.chain,
                  static_cast<long long>(now + int64_t{arguments_.deadline_ms} * 1'000'000));
    history_.Say("call", id, now, rest);
    return id;
  }
  void Return(uint64_t id, int64_t at, const std::vector<PageResult>& pages,
              const std::vector<int64_t>& values) {
    std::string text = ", \"pages\": [";
    for (size_t i = 0; i < pages.size(); ++i) {
      text += i > 0 ? ", [\"" : "[\"";
      text += cistern::PageResultName(pages[i]);
      text += "\", " + std::to_string(i < values.size() ? values[i] : 0) + "]";
    }
    history_.Say("return", id, at, text + "]");
  }

  cistern::CallOptions Options() const {
    cistern::CallOptions options;
    options.deadline = std::chrono::milliseconds(arguments_.deadline_ms);
    return options;
  }
  std::vector<cistern::Page> Pages(uint32_t count) {
    std::memset(memory_.data(), 0x5a, memory_.size() * 8);
    std::vector<cistern::Page> pages;
    for (uint32_t i = 0; i < count; ++i) pages.emplace_back(memory_.data() + i * kWords, kPartBytes);
    return pages;
  }
  std::vector<int64_t> Values(const Key& key, const std::vector<PageResult>& results) const {
    std::vector<int64_t> values;
    for (uint32_t block = 0; block < results.size(); ++block) {
      const uint64_t* words = memory_.data() + block * kWords;
      bool whole = results[block] == PageResult::kOk;
      for (size_t i = 1; whole && i < kWords; ++i) whole = words[i] == Word(key, block, words[0], i);
      values.push_back(results[block] != PageResult::kOk ? 0 : whole ? static_cast<int64_t>(words[0]) : -1);
    }
    return values;
  }

  void Store(const Key& key, const cistern::Chain& chain) {
    const uint64_t id = Call("store", key);
    std::vector<cistern::ConstPage> pages;
    for (uint32_t block = 0; block < kBlocks; ++block) {
      for (size_t i = 0; i < kWords; ++i) memory_[block * kWords + i] = Word(key, block, id, i);
      pages.emplace_back(memory_.data() + block * kWords, kPartBytes);
    }
    const auto report = client_.StoreWait(chain, 0, pages, Options());
    Return(id, Now(), report.pages, {});
  }
  void Fetch(const Key& key, const cistern::Chain& chain) {
    const auto pages = Pages(kBlocks);
    const uint64_t id = Call("fetch", key);
    const auto report = client_.FetchWait(chain, pages, Options());
    const int64_t at = Now();
    Return(id, at, report.pages, Values(key, report.pages));
  }
  void PlanAndLoad(const Key& key, const cistern::Chain& chain) {
    uint64_t id = Call("plan", key);
    const auto hit = client_.PlanWait(chain, Options());
    Return(id, Now(), {}, {});
    if (!hit.ok() || hit.value().blocks() == 0) return;
    const auto pages = Pages(hit.value().blocks());
    id = Call("load", key);
    const auto report = client_.LoadWait(hit.value(), 0, pages, Options());
    const int64_t at = Now();
    Return(id, at, report.pages, Values(key, report.pages));
    client_.Release(hit.value());
  }

  cistern::Client& client_;
  History& history_;
  const Arguments& arguments_;
  uint64_t random_;
  uint64_t next_id_;
  std::vector<uint64_t> memory_;
};

bool Parse(int argc, char** argv, Arguments& out) {
  const std::map<std::string, uint32_t*> numbers = {{"--client", &out.client},
                                                    {"--seed", &out.seed},
                                                    {"--threads", &out.threads},
                                                    {"--chains", &out.chains},
                                                    {"--deadline-ms", &out.deadline_ms}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--router") {
      out.router = argv[i + 1];
    } else if (name == "--transport") {
      out.transport = argv[i + 1];
    } else if (numbers.count(name) != 0) {
      *numbers.at(name) = static_cast<uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && !out.router.empty() && out.chains > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "usage: history_client --router HOST:PORT [--NAME VALUE]...; the source has the names\n");
    return 2;
  }
  cistern::ClientOptions options;
  options.router = arguments.router;
  options.transport = arguments.transport;
  options.window_bytes = size_t{4} << 20;
  auto client = cistern::Client::Connect(options);
  if (!client.ok()) {
    std::fprintf(stderr, "history_client: %s\n", client.status().message().c_str());
    return 2;
  }
  History history;
  std::atomic<uint64_t> epoch{1};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < arguments.threads; ++number) {
    threads.emplace_back([&, number] {
      Worker worker(*client.value(), history, arguments, number);
      while (!stop) {
        worker.Step(epoch);
        poll(nullptr, 0, 2);  // Bounds the length of the history, not the order of anything.
      }
    });
  }
  for (std::string line; std::getline(std::cin, line);) {
    if (line.rfind("epoch ", 0) == 0) epoch = std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  return 0;
}
