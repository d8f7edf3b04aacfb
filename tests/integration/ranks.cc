// The ranks of one engine, each with a client of its own, ask for the same named requests while somebody
// drops what no lease holds. Prints JSON: one line, or with --pause 1 a line {"event": "planned"} before,
// after which it waits for a line on its input.
//
//   ranks --router R --layout NAME [--scale N] [--ranks N] [--rounds N] [--seed N] [--pause 1]
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cistern/client.h"
#include "client/internal/admin.h"
#include "core/group_layout.h"
#include "core/random.h"

namespace cistern {
namespace {

constexpr std::chrono::milliseconds kPatience{20'000};
constexpr uint32_t kBlocks = 24;

struct Arguments {
  std::string router, layout;
  uint32_t scale = 1, ranks = 8, rounds = 1;
  uint64_t seed = 1;
  bool pause = false;
};
struct Totals {
  uint64_t disagreed = 0;  // Requests whose ranks got more than one length.
  uint64_t hits = 0, drops = 0;
  uint64_t anew = 0;           // Asked again before its end: another hit than the one it had.
  uint64_t wrong_recheck = 0;  // Said to hold, and did not load.
  uint64_t lost = 0;           // Said not to hold any more.
  uint64_t kept_lost = 0;      // ... and given out again.
  uint64_t failed_stores = 0;
};

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "ranks: %s\n", why.c_str());
  std::exit(2);
}
template <typename T>
T Need(Result<T> result) {
  if (!result.ok()) Die(result.status().message());
  return std::move(result.value());
}

struct Rank {
  std::unique_ptr<Client> client{};
  Chain chain{};
  CallOptions options{};
  Hit hit{};
};

class Engine {
 public:
  explicit Engine(const Arguments& arguments)
      : arguments_(arguments),
        layout_(Need(NamedLayout(arguments.layout, arguments.scale))),
        random_(arguments.seed) {
    const uint64_t tokens = uint64_t{kBlocks} * layout_.block_tokens;
    for (uint32_t i = 0; i < tokens; ++i) tokens_.push_back(static_cast<uint32_t>(random_.Next()));
    for (uint32_t i = 0; i <= arguments.ranks; ++i) {  // The last one writes.
      ClientOptions connect;
      connect.router = arguments.router;
      connect.admin = true;  // Dropping all is for who runs the cluster.
      Rank rank{.client = Need(Client::Connect(connect))};
      rank.chain = Need(rank.client->MakeChain(layout_, tokens_));
      rank.options.deadline = kPatience;
      rank.options.ranks = arguments.ranks;
      ranks_.push_back(std::move(rank));
    }
    bytes_.resize(PageBytes(0));
    tail_bytes_.resize(layout_.groups->has_tails ? PageBytes(tokens) : 0);
  }

  void Round(uint32_t round) {
    Store(kBlocks / 2);
    Store(kBlocks);
    // With a pause the caller takes nodes away, and needs a hit that only they end.
    const bool drop = !arguments_.pause && random_.Below(2) == 0;
    std::thread dropper([&] {
      for (uint64_t spin = random_.Below(2000); drop && spin > 0; --spin) std::this_thread::yield();
      if (drop) DropAll();
    });
    ForEachRank([&](Rank& rank) {
      rank.options.request_id = "request " + std::to_string(round);
      rank.hit = Need(rank.client->PlanWait(rank.chain, rank.options));
    });
    dropper.join();
    totals_.drops += drop;
    for (const Rank& rank : Readers()) totals_.disagreed += rank.hit.tokens() != Readers()[0].hit.tokens();
    totals_.hits += Readers()[0].hit.tokens() != 0;
  }

  // After the engine has allocated: does it hold, and if so, does it load?
  void Recheck() {
    for (Rank& rank : Readers()) {
      if (rank.hit.tokens() == 0) continue;
      const PageResult held = rank.client->RecheckWait(rank.hit, rank.options);
      const Hit again = Need(rank.client->PlanWait(rank.chain, rank.options));
      if (held == PageResult::kOk) {
        totals_.anew += again.rep() != rank.hit.rep();
        totals_.wrong_recheck += !Loads(rank);
      } else {
        ++totals_.lost;
        totals_.kept_lost += again.rep() == rank.hit.rep();
      }
    }
    ForEachRank([](Rank& rank) {
      rank.client->Release(rank.hit);
      rank.hit = Hit();
    });
  }

  void Print(const char* event) const {
    std::printf(
        "{\"event\": \"%s\", \"disagreed\": %llu, \"hits\": %llu, \"drops\": %llu, \"anew\": %llu, "
        "\"wrong_recheck\": %llu, \"lost\": %llu, \"kept_lost\": %llu, \"failed_stores\": %llu}\n",
        event, Number(totals_.disagreed), Number(totals_.hits), Number(totals_.drops), Number(totals_.anew),
        Number(totals_.wrong_recheck), Number(totals_.lost), Number(totals_.kept_lost),
        Number(totals_.failed_stores));
    std::fflush(stdout);
  }

 private:
  static unsigned long long Number(uint64_t value) { return value; }
  std::span<Rank> Readers() { return std::span(ranks_).first(arguments_.ranks); }
  template <typename Action>
  void ForEachRank(Action action) {
    std::vector<std::thread> threads;
    for (Rank& rank : Readers()) threads.emplace_back([&action, &rank] { action(rank); });
    for (std::thread& thread : threads) thread.join();
  }
  uint64_t PageBytes(uint64_t tail_tokens) {
    uint64_t bytes = 0;
    for (const PagePart& part : Need(ranks_[0].client->PageParts(ranks_[0].chain, {}, tail_tokens)))
      bytes += part.bytes;
    return bytes;
  }
  void Store(uint32_t blocks) {
    Rank& writer = ranks_.back();
    const std::vector<ConstPage> pages(blocks, ConstPage(bytes_.data(), bytes_.size()));
    for (const PageResult result : writer.client->StoreWait(writer.chain, 0, pages, writer.options).pages)
      totals_.failed_stores += result != PageResult::kOk && result != PageResult::kExists;
    if (tail_bytes_.empty()) return;
    const StoreReport tail = writer.client->StoreTailWait(
        writer.chain, uint64_t{blocks} * layout_.block_tokens,
        ConstPage(tail_bytes_.data(), tail_bytes_.size()), {.junction = true}, writer.options);
    totals_.failed_stores +=
        tail.pages.empty() || (tail.pages[0] != PageResult::kOk && tail.pages[0] != PageResult::kExists);
  }
  bool Loads(Rank& rank) {
    std::vector<std::vector<std::byte>> memory(rank.hit.blocks(), std::vector<std::byte>(bytes_.size()));
    std::vector<Page> pages;
    for (auto& one : memory) pages.emplace_back(one.data(), one.size());
    if (rank.client->LoadWait(rank.hit, 0, pages, rank.options).ok_pages() != pages.size()) return false;
    for (const auto& one : memory) {
      if (one != bytes_) return false;
    }
    if (tail_bytes_.empty()) return true;
    std::vector<std::byte> tail(tail_bytes_.size());
    const LoadReport report =
        rank.client->LoadTailWait(rank.hit, Page(tail.data(), tail.size()), rank.options);
    return report.ok_pages() == 1 && tail == tail_bytes_;
  }
  void DropAll() {
    Client& client = *ranks_.back().client;
    const ClusterMap map = internal::Map(client);
    for (const NodeEntry& node : map.nodes) {
      if (const auto dropped = internal::DropAll(client, node.id, kPatience); !dropped.ok())
        Die(std::string(dropped.status().message()));
    }
  }

  const Arguments& arguments_;
  Layout layout_;
  Random random_;
  std::vector<uint32_t> tokens_;
  std::vector<Rank> ranks_;
  std::vector<std::byte> bytes_, tail_bytes_;
  Totals totals_;
};

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) {
  cistern::Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    const auto number = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    if (name == "--router")
      arguments.router = value;
    else if (name == "--layout")
      arguments.layout = value;
    else if (name == "--scale")
      arguments.scale = number;
    else if (name == "--ranks")
      arguments.ranks = number;
    else if (name == "--rounds")
      arguments.rounds = number;
    else if (name == "--seed")
      arguments.seed = number;
    else if (name == "--pause")
      arguments.pause = number == 1;
    else
      cistern::Die("no flag " + name);
  }
  if (arguments.router.empty() || arguments.layout.empty()) cistern::Die("--router, --layout");
  std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(arguments.seed));
  cistern::Engine engine(arguments);
  for (uint32_t round = 0; round < arguments.rounds; ++round) {
    engine.Round(round);
    if (arguments.pause) {
      engine.Print("planned");
      (void)std::getchar();
    }
    engine.Recheck();
  }
  engine.Print("done");
  return 0;
}
