// Ranks of one width store a prompt's blocks and its tail, ranks of another read them; every byte that a
// reader's tensors get is compared with a cut of its own out of the whole model. Prints one JSON object.
//
//   recut --router R --layout NAME|FILE --write RANKS --read RANKS [--transport T] [--seed N] [--fetch 1]
//         [--host-share NAME]
//
// RANKS: "tp4": four tensor-parallel ranks; "pp0-40,40-80": pipeline stages by layers; "tp2pp0-40,40-80":
// both.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "cistern/client.h"
#include "core/group_layout.h"
#include "core/layout/geometry.h"

namespace cistern {
namespace {

using Bytes = std::vector<std::byte>;
using Stage = std::pair<uint32_t, uint32_t>;  // Layers [first, end); end 0: all.

struct Ranks {
  uint32_t tp = 1;
  std::vector<Stage> stages = {{0, 0}};
};
struct Arguments {
  std::string router, layout, transport = "auto", host_share;
  Ranks write, read;
  uint32_t seed = 1;
  bool fetch = false;  // Readers fetch instead of planning and loading.
};

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "recut: %s\n", why.c_str());
  std::exit(2);
}

Ranks ParseRanks(const std::string& text) {
  Ranks out;
  const size_t pp = text.find("pp");
  if (text.rfind("tp", 0) == 0) out.tp = static_cast<uint32_t>(std::strtoul(text.c_str() + 2, nullptr, 10));
  if (pp == std::string::npos) return out;
  out.stages.clear();
  std::stringstream stages(text.substr(pp + 2));
  for (std::string one; std::getline(stages, one, ',');) {
    const size_t dash = one.find('-');
    if (dash == std::string::npos) Die("not a stage: " + one);
    out.stages.emplace_back(std::strtoul(one.c_str(), nullptr, 10),
                            std::strtoul(one.c_str() + dash + 1, nullptr, 10));
  }
  return out;
}

// One row of one head of one tensor of the model, in block (or snapshot) `unit`: what an engine without
// parallelism would have there.
struct RowName {
  uint32_t unit, group, layer, segment, plane, head;
  uint64_t row;
};
void Truth(const RowName& name, uint64_t bytes, std::byte* out) {
  uint64_t x = 0x9e3779b97f4a7c15;
  for (const uint64_t part : {uint64_t{name.unit}, uint64_t{name.group}, uint64_t{name.layer},
                              uint64_t{name.segment}, uint64_t{name.plane}, uint64_t{name.head}, name.row}) {
    x = (x ^ (part + 1)) * 0xbf58476d1ce4e5b9;
    x ^= x >> 29;
  }
  for (uint64_t at = 0; at < bytes; at += 8) {
    x = x * 6364136223846793005 + 1442695040888963407;
    const uint64_t word = x ^ (x >> 31);
    std::memcpy(out + at, &word, std::min<uint64_t>(8, bytes - at));
  }
}

// A rank's own memory of one block or tail, as engines keep it: a tensor [row][its heads][bytes of a head's
// row] for each (group, layer, segment, plane).
using Tensors = std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, Bytes>;

struct Heads {
  uint32_t first = 0, count = 0;
};
Heads HeadsOf(const layout::Group& group, const layout::Plane& plane, const GroupShare& share) {
  if (plane.shard == layout::Shard::kNone || group.replicated) return {0, plane.heads};
  const uint32_t per_slice = plane.heads / group.slices;
  return {share.slice_first * per_slice, share.slice_count * per_slice};
}

// Visits every (group, layer, segment, plane) of a kind that the rank has.
template <typename Visit>
void ForEachTensor(const layout::Layout& l, const std::vector<GroupShare>& shares, bool tail, Visit visit) {
  for (uint32_t g = 0; g < l.groups.size(); ++g) {
    const layout::Group& group = l.groups[g];
    if (group.family == layout::Family::kScratch || IsTail(group) != tail) continue;
    for (uint32_t span = shares[g].span_first; span < uint32_t{shares[g].span_first} + shares[g].span_count;
         ++span) {
      for (const uint32_t layer : layout::LayersOf(group, span)) {
        for (uint32_t s = 0; s < group.segments.size(); ++s) {
          const std::vector<uint32_t>& layers = group.segments[s].layers;
          if (std::find(layers.begin(), layers.end(), layer) == layers.end()) continue;
          for (uint32_t p = 0; p < group.segments[s].planes.size(); ++p) visit(g, span, layer, s, p);
        }
      }
    }
  }
}

// The reference: cut straight out of the model, without any part.
Tensors Cut(const layout::Layout& l, const std::vector<GroupShare>& shares, uint32_t unit,
            uint64_t tail_tokens) {
  Tensors out;
  ForEachTensor(l, shares, tail_tokens != 0,
                [&](uint32_t g, uint32_t, uint32_t layer, uint32_t s, uint32_t p) {
                  const layout::Group& group = l.groups[g];
                  const layout::Plane& plane = group.segments[s].planes[p];
                  const Heads heads = HeadsOf(group, plane, shares[g]);
                  const uint64_t rows = layout::PartRows(l, group, group.segments[s], tail_tokens);
                  const uint64_t bytes = layout::RowBytes(plane);
                  Bytes& tensor = out[{g, layer, s, p}];
                  tensor.resize(rows * heads.count * bytes);
                  for (uint64_t row = 0; row < rows; ++row) {
                    for (uint32_t h = 0; h < heads.count; ++h) {
                      Truth({unit, g, layer, s, p, heads.first + h, row}, bytes,
                            tensor.data() + (row * heads.count + h) * bytes);
                    }
                  }
                });
  return out;
}

// Moves rows between a page (the rank's parts, one behind the other) and its tensors.
void Move(const layout::Layout& l, const std::vector<GroupShare>& shares, const std::vector<PagePart>& parts,
          uint64_t tail_tokens, bool to_page, std::byte* page, Tensors& tensors) {
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint64_t> part_at;  // Chunks of a part lie side by side.
  uint64_t at = 0;
  for (const PagePart& part : parts) {
    part_at.emplace(std::tuple(part.group, part.slice, part.span), at);
    at += part.bytes;
  }
  ForEachTensor(
      l, shares, tail_tokens != 0, [&](uint32_t g, uint32_t span, uint32_t layer, uint32_t s, uint32_t p) {
        const layout::Group& group = l.groups[g];
        const layout::Plane& plane = group.segments[s].planes[p];
        const Heads heads = HeadsOf(group, plane, shares[g]);
        const uint64_t rows = layout::PartRows(l, group, group.segments[s], tail_tokens);
        const uint64_t bytes = layout::RowBytes(plane);
        const bool cut = plane.shard != layout::Shard::kNone && !group.replicated;
        const uint32_t per_slice = cut ? plane.heads / group.slices : plane.heads;
        Bytes& tensor = tensors.at({g, layer, s, p});
        for (uint32_t h = 0; h < heads.count; ++h) {
          const uint32_t slice = cut ? (heads.first + h) / per_slice : 0;
          const uint64_t part = part_at.at({g, slice, span});
          for (uint64_t row = 0; row < rows; ++row) {
            const layout::RowPlace place{
                .layer = layer, .segment = s, .head = (heads.first + h) % per_slice, .plane = p, .row = row};
            std::byte* in_page = page + part + layout::RowOffset(l, group, span, place, tail_tokens).value();
            std::byte* in_tensor = tensor.data() + (row * heads.count + h) * bytes;
            std::memcpy(to_page ? in_page : in_tensor, to_page ? in_tensor : in_page, bytes);
          }
        }
      });
}

uint64_t BytesOf(const std::vector<PagePart>& parts) {
  uint64_t bytes = 0;
  for (const PagePart& part : parts) bytes += part.bytes;
  return bytes;
}

struct Run {
  const Arguments& arguments;
  Layout layout;
  const layout::Layout& l;
  std::vector<uint32_t> tokens{};
  uint64_t wrong_tensors = 0, tensors = 0, bytes = 0, failed_pages = 0, pages = 0;
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> moved{};  // Slices and spans that readers had.
};

// One rank's turn at one block (tail_tokens 0) or at the tail.
struct Turn {
  Client& client;
  const Chain& chain;
  const CallOptions& options;
  std::vector<GroupShare> shares;
  uint32_t unit = 0;
  uint64_t tail_tokens = 0;
};

void Write(Run& run, const Turn& turn) {
  auto parts = turn.client.PageParts(turn.chain, turn.options, turn.tail_tokens);
  if (!parts.ok()) Die(parts.status().message());
  Tensors mine = Cut(run.l, turn.shares, turn.unit, turn.tail_tokens);
  Bytes page(BytesOf(parts.value()));
  Move(run.l, turn.shares, parts.value(), turn.tail_tokens, /*to_page=*/true, page.data(), mine);
  const ConstPage from(page.data(), page.size());
  const StoreReport report =
      turn.tail_tokens == 0 ? turn.client.StoreWait(turn.chain, turn.unit, {&from, 1}, turn.options)
                            : turn.client.StoreTailWait(turn.chain, turn.tail_tokens, from, {}, turn.options);
  const PageResult result = report.pages.empty() ? PageResult::kInvalid : report.pages[0];
  if (result != PageResult::kOk && result != PageResult::kExists)
    Die(std::string("store: ") + PageResultName(result) + " " + report.status.message());
}

// Compares a page of a reader's, which came with this result, with its own cut of the model.
void Compare(Run& run, const Turn& turn, PageResult result, Bytes& page) {
  auto parts = turn.client.PageParts(turn.chain, turn.options, turn.tail_tokens);
  if (!parts.ok()) Die(parts.status().message());
  ++run.pages;
  if (result != PageResult::kOk) {
    ++run.failed_pages;
    std::fprintf(stderr, "recut: page %u: %s\n", turn.unit, PageResultName(result));
    return;
  }
  for (const PagePart& part : parts.value()) run.moved.emplace(part.group, part.slice, part.span, part.chunk);
  const Tensors wanted = Cut(run.l, turn.shares, turn.unit, turn.tail_tokens);
  Tensors got = wanted;
  for (auto& [name, tensor] : got) std::fill(tensor.begin(), tensor.end(), std::byte{0xdb});
  Move(run.l, turn.shares, parts.value(), turn.tail_tokens, /*to_page=*/false, page.data(), got);
  for (const auto& [name, tensor] : wanted) {
    ++run.tensors;
    run.bytes += tensor.size();
    run.wrong_tensors += got.at(name) != tensor;
  }
}

Bytes PageFor(const Turn& turn) {
  auto parts = turn.client.PageParts(turn.chain, turn.options, turn.tail_tokens);
  if (!parts.ok()) Die(parts.status().message());
  return Bytes(BytesOf(parts.value()), std::byte{0xdb});
}

void Load(Run& run, const Turn& turn, const Hit& hit) {
  Bytes page = PageFor(turn);
  const Page to(page.data(), page.size());
  const LoadReport report = turn.tail_tokens == 0
                                ? turn.client.LoadWait(hit, turn.unit, {&to, 1}, turn.options)
                                : turn.client.LoadTailWait(hit, to, turn.options);
  Compare(run, turn, report.pages.empty() ? PageResult::kInvalid : report.pages[0], page);
}

// All blocks and the tail in one call.
void Fetch(Run& run, Turn turn) {
  std::vector<Bytes> memory;
  std::vector<Page> pages;
  for (uint32_t i = 0; i < turn.chain.blocks(); ++i) memory.push_back(PageFor(turn));
  for (Bytes& page : memory) pages.emplace_back(page.data(), page.size());
  CallOptions options = turn.options;
  Bytes tail;
  Page tail_page;
  if (run.layout.groups->has_tails) {
    turn.unit = turn.chain.blocks();
    turn.tail_tokens = run.tokens.size();
    tail = PageFor(turn);
    tail_page = Page(tail.data(), tail.size());
    options.tail = &tail_page;
  }
  const LoadReport report = turn.client.FetchWait(turn.chain, pages, options);
  if (report.hit_blocks != pages.size()) Die("not all of it hits: " + report.status.message());
  if (!tail.empty()) Compare(run, turn, report.pages.back(), tail);
  turn.tail_tokens = 0;
  for (turn.unit = 0; turn.unit < pages.size(); ++turn.unit)
    Compare(run, turn, report.pages[turn.unit], memory[turn.unit]);
}

// Every rank of one width does its part, each with a client of its own.
void EveryRank(Run& run, const Ranks& ranks, bool write) {
  const uint64_t tokens = run.tokens.size();
  std::vector<std::unique_ptr<Client>> others;  // What they share goes with the last of them.
  const auto keep = [&](std::unique_ptr<Client> client) {
    if (!run.arguments.host_share.empty()) others.push_back(std::move(client));
  };
  for (const Stage& stage : ranks.stages) {
    for (uint32_t rank = 0; rank < ranks.tp; ++rank) {
      ClientOptions connect;
      connect.router = run.arguments.router;
      connect.transport = run.arguments.transport;
      connect.host_share = run.arguments.host_share;
      // Between a plan and its last load stand comparisons, row by row: where they take seconds, under a
      // sanitizer on a busy machine, the usual lease ends before them.
      connect.lease_ttl = std::chrono::seconds(30);
      auto client = Client::Connect(connect);
      if (!client.ok()) Die(client.status().message());
      auto chain = client.value()->MakeChain(run.layout, run.tokens);
      if (!chain.ok()) Die(chain.status().message());
      CallOptions options;
      options.tp = ranks.tp;
      options.tp_rank = rank;
      options.layer_first = stage.first;
      options.layer_end = stage.second;
      options.deadline = std::chrono::milliseconds(20'000);
      options.host_shared = !run.arguments.host_share.empty();
      auto shares = ShareOf(
          run.l, {.tp = ranks.tp, .tp_rank = rank, .layer_first = stage.first, .layer_end = stage.second});
      if (!shares.ok()) Die(std::string(shares.status().message()));
      Hit hit;
      if (!write && !run.arguments.fetch) {
        auto planned = client.value()->PlanWait(chain.value(), options);
        if (!planned.ok()) Die(planned.status().message());
        hit = planned.value();
        if (hit.tokens() != tokens) Die(std::string("not all of it hits: ") + hit.miss_reason());
      }
      Turn turn{*client.value(), chain.value(), options, *std::move(shares)};
      if (!write && run.arguments.fetch) {
        Fetch(run, turn);
        keep(std::move(client.value()));
        continue;
      }
      for (turn.unit = 0; turn.unit < chain.value().blocks(); ++turn.unit) {
        write ? Write(run, turn) : Load(run, turn, hit);
      }
      turn.tail_tokens = tokens;
      if (run.layout.groups->has_tails) write ? Write(run, turn) : Load(run, turn, hit);
      client.value()->Release(hit);
      keep(std::move(client.value()));
    }
  }
}

int Main(const Arguments& arguments) {
  Result<Layout> layout = NamedLayout(arguments.layout);
  if (!layout.ok()) Die(layout.status().message());
  Run run{.arguments = arguments, .layout = layout.value(), .l = layout.value().groups->layout};
  // Two blocks, or as many as one boundary for a tail needs.
  const uint64_t tokens =
      std::max<uint64_t>(2 * layout.value().block_tokens, layout.value().groups->align_tokens());
  for (uint32_t i = 0; i < tokens; ++i) run.tokens.push_back(i * 2654435761u + arguments.seed);
  EveryRank(run, arguments.write, /*write=*/true);
  EveryRank(run, arguments.read, /*write=*/false);
  std::printf(
      "{\"pages\": %llu, \"failed_pages\": %llu, \"tensors\": %llu, \"wrong_tensors\": %llu, \"bytes\": "
      "%llu, "
      "\"parts\": %zu}\n",
      static_cast<unsigned long long>(run.pages), static_cast<unsigned long long>(run.failed_pages),
      static_cast<unsigned long long>(run.tensors), static_cast<unsigned long long>(run.wrong_tensors),
      static_cast<unsigned long long>(run.bytes), run.moved.size());
  return run.wrong_tensors + run.failed_pages == 0 ? 0 : 1;
}

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) {
  cistern::Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--router")
      arguments.router = value;
    else if (name == "--layout")
      arguments.layout = value;
    else if (name == "--transport")
      arguments.transport = value;
    else if (name == "--host-share")
      arguments.host_share = value;
    else if (name == "--write")
      arguments.write = cistern::ParseRanks(value);
    else if (name == "--read")
      arguments.read = cistern::ParseRanks(value);
    else if (name == "--fetch")
      arguments.fetch = value == "1";
    else if (name == "--seed")
      arguments.seed = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    else
      cistern::Die("no flag " + name);
  }
  if (argc % 2 == 0 || arguments.router.empty() || arguments.layout.empty())
    cistern::Die("--router, --layout");
  return cistern::Main(arguments);
}
