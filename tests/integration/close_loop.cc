// Clients that close at odd moments: connects, begins calls of every kind, polls a while, closes, again and
// again while a script kills, stops and starts nodes and router.
//   close_loop --router R --transport T --rounds N --seed S
// Prints one JSON object a round, then {"event": "done"}; ends early with its input. A round without a router
// has "connected": false.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cistern/client.h"

namespace {

using cistern::Client;
using cistern::PageResult;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kBlocks = 8;
constexpr uint32_t kPart = 16384;
constexpr auto kDeadline = std::chrono::milliseconds(400);

struct Round {
  uint32_t begun = 0, ended = 0, ok_pages = 0, wrong = 0;
  double close_ms = 0;
};

// Memory of one call; its bytes are the block's number, so that any client's are right for all.
struct Call {
  std::vector<std::byte> memory = std::vector<std::byte>(size_t{kBlocks} * kPart);
  std::vector<cistern::Page> targets() {
    std::vector<cistern::Page> pages;
    for (uint32_t i = 0; i < kBlocks; ++i) pages.emplace_back(memory.data() + size_t{i} * kPart, kPart);
    return pages;
  }
  std::vector<cistern::ConstPage> sources() {
    std::vector<cistern::ConstPage> pages;
    for (uint32_t i = 0; i < kBlocks; ++i) {
      std::fill_n(memory.data() + size_t{i} * kPart, kPart, static_cast<std::byte>(i + 1));
      pages.emplace_back(memory.data() + size_t{i} * kPart, kPart);
    }
    return pages;
  }
  void Check(const cistern::LoadReport& report, Round& round) const {
    for (uint32_t i = 0; i < report.pages.size(); ++i) {
      if (report.pages[i] != PageResult::kOk) continue;
      ++round.ok_pages;
      const std::byte* page = memory.data() + size_t{i} * kPart;
      round.wrong +=
          !std::all_of(page, page + kPart, [i](std::byte b) { return b == static_cast<std::byte>(i + 1); });
    }
  }
};

class Driver {
 public:
  Driver(std::unique_ptr<Client> client, std::mt19937& random, Round& round)
      : client_(std::move(client)), random_(random), round_(round) {
    options_.deadline = kDeadline;
  }
  void Run() {
    const uint32_t calls = 1 + Draw(12);
    for (uint32_t i = 0; i < calls; ++i) Begin();
    const auto end = Clock::now() + std::chrono::microseconds(Draw(Draw(2) == 0 ? 3000 : 60'000));
    while (Clock::now() < end && round_.ended < round_.begun) {
      pollfd readable{client_->event_fd(), POLLIN, 0};
      ::poll(&readable, 1, 1);
      client_->Poll();
    }
    const auto begin = Clock::now();
    client_.reset();
    round_.close_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

 private:
  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  void Begin() {
    cistern::Layout layout;
    layout.model = "close";
    layout.block_tokens = 16;
    layout.part_bytes = kPart;
    const std::vector<uint32_t> tokens(size_t{kBlocks} * layout.block_tokens, Draw(20));
    const auto made = client_->MakeChain(layout, tokens);
    if (!made.ok()) return;
    const cistern::Chain& chain = made.value();
    calls_.push_back(std::make_unique<Call>());
    Call& call = *calls_.back();
    ++round_.begun;
    switch (Draw(4)) {
      case 0:
        client_->Store(chain, 0, call.sources(), options_,
                       [this](const cistern::StoreReport&) { ++round_.ended; });
        break;
      case 1:
        client_->Fetch(chain, call.targets(), options_, [this, &call](const cistern::LoadReport& report) {
          ++round_.ended;
          call.Check(report, round_);
        });
        break;
      case 2:
        client_->Lookup(chain, options_, [this](const cistern::Status&, uint32_t) { ++round_.ended; });
        break;
      default:  // Plans, and loads out of the callback, which may come while the client closes.
        client_->Plan(chain, options_,
                      [this, &call, client = client_.get()](const cistern::Status&, const cistern::Hit& hit) {
                        ++round_.ended;
                        ++round_.begun;
                        std::vector<cistern::Page> pages = call.targets();
                        pages.resize(hit.blocks());
                        client->Load(hit, 0, pages, options_, [this, &call](const cistern::LoadReport& r) {
                          ++round_.ended;
                          call.Check(r, round_);
                        });
                      });
    }
  }

  std::vector<std::unique_ptr<Call>> calls_;  // Outlives the client.
  std::unique_ptr<Client> client_;
  cistern::CallOptions options_;
  std::mt19937& random_;
  Round& round_;
};

bool InputEnded() {
  pollfd in{0, POLLIN, 0};
  return ::poll(&in, 1, 0) > 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> arguments = {
      {"--router", ""}, {"--transport", "auto"}, {"--rounds", "100"}, {"--seed", "1"}};
  for (int i = 1; i + 1 < argc; i += 2) arguments[argv[i]] = argv[i + 1];
  std::mt19937 random(static_cast<uint32_t>(std::strtoul(arguments["--seed"].c_str(), nullptr, 10)));
  const uint64_t rounds = std::strtoul(arguments["--rounds"].c_str(), nullptr, 10);
  for (uint64_t i = 0; i < rounds && !InputEnded(); ++i) {
    cistern::ClientOptions options;
    options.router = arguments["--router"];
    options.transport = arguments["--transport"];
    options.wait_for_router = false;
    options.connect_deadline = std::chrono::seconds(1);
    options.window_bytes = 1 << 20;
    auto client = Client::Connect(options);
    Round round;
    const bool connected = client.ok();
    if (connected) Driver(std::move(client.value()), random, round).Run();
    std::printf(
        "{\"event\": \"round\", \"connected\": %s, \"begun\": %u, \"ended\": %u, \"ok\": %u, "
        "\"wrong\": %u, \"close_ms\": %.1f}\n",
        connected ? "true" : "false", round.begun, round.ended, round.ok_pages, round.wrong, round.close_ms);
    std::fflush(stdout);
  }
  std::printf("{\"event\": \"done\"}\n");
  return 0;
}
