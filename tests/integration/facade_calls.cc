// Calls of the library against a real cluster that no command makes: storage forms and explicit caching.
// Prints one JSON object of checks, all true when right.
//
//   facade_calls --router R
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cistern/storage_form.h"
#include "core/formats/bf16.h"
#include "core/random.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 20340;
constexpr uint32_t kBlocks = 64;
bool g_first = true;

void Check(const char* name, bool right) {
  std::printf("%s\"%s\": %s", g_first ? "{" : ", ", name, right ? "true" : "false");
  g_first = false;
}
template <typename T>
T Need(Result<T> result) {
  if (result.ok()) return std::move(result.value());
  std::fprintf(stderr, "facade_calls: %s\n", result.status().message().c_str());
  std::exit(2);
}

std::vector<uint32_t> Prompt(uint32_t tokens) {
  Random random(kSeed);
  std::vector<uint32_t> out(tokens);
  for (uint32_t& token : out) token = static_cast<uint32_t>(random.Next());
  return out;
}

// bf16 pages stored as int8, as their namespace allows, and read back by one that chose alike.
void StorageForms(Client& client) {
  Layout raw;
  raw.model = "forms";
  raw.block_tokens = 32;
  raw.part_bytes = 4 * 32 * 128 * 2;
  raw.slices = 2;
  raw.dtype = "bf16";
  raw.geometry = "heads=8 d=64";
  const RawPart part{.sequences = 4, .rows = 32, .row_tile = 1, .planes = {{64, true}, {64, false}}};
  const StorageForm form = Need(StorageForm::Choose(
      raw, part, {.forms = {"int8"}, .write_gbps = 0.001, .read_gbps = 0.001, .reads_per_write = 1}));
  std::fprintf(stderr, "%s\n", form.why().c_str());
  Check("int8_was_chosen", form.form() == "int8");
  const std::vector<uint32_t> tokens = Prompt(kBlocks * raw.block_tokens);
  const Chain chain = Need(client.MakeChain(form.layout(), tokens));
  const size_t values = size_t{raw.part_bytes} * raw.slices / 2;
  Random random(kSeed);
  std::vector<uint16_t> from(values * kBlocks), to(values * kBlocks);
  for (uint16_t& value : from) value = FloatToBf16(static_cast<float>(random.Unit() * 6 - 3));
  from[values * 40] = 0x7f80;  // Block 40 has an infinity, so the chain ends before it.
  std::vector<ConstPage> pages;
  std::vector<Page> targets;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    pages.emplace_back(&from[i * values], values * 2);
    targets.emplace_back(&to[i * values], values * 2);
  }
  const StoreReport stored = form.StoreWait(client, chain, 0, pages);
  Check("pages_with_such_a_form_are_stored",
        stored.pages.size() == kBlocks && stored.pages[39] == PageResult::kOk);
  Check("others_are_named", stored.pages.size() == kBlocks && stored.pages[40] == PageResult::kInvalid);
  Check("fewer_bytes_moved", stored.bytes < 40 * values * 2 * 6 / 10);
  const Hit hit = Need(client.PlanWait(chain));
  Check("found_by_who_chose_alike", hit.blocks() == 40);
  const LoadReport loaded = form.LoadWait(client, hit, 0, std::span(targets).first(40));
  double most = 0;
  for (size_t i = 0; i < values * 40; ++i)
    most = std::max(most, std::fabs(double{Bf16ToFloat(to[i])} - Bf16ToFloat(from[i])));
  Check("within_the_bound", loaded.ok_pages() == 40 && most <= 3.0 / 254 + 3.0 / 256);
  Check("another_layout_to_others", Need(client.LookupWait(Need(client.MakeChain(raw, tokens)))) == 0);
}

// A prompt commits at two marks; another finds what its own marks lead to.
void Breakpoints(Client& client) {
  const Layout layout = Need(NamedLayout("gpt-oss-20b", 512));
  const uint32_t block = layout.block_tokens;
  const Chain chain = Need(client.MakeChain(layout, Prompt(kBlocks * block)));
  const std::vector<uint64_t> points = {10 * block + 3, 40 * block};
  const std::vector<uint64_t> marks = Need(Client::CommitMarks(chain, points));
  Check("marks_are_whole_blocks", marks == std::vector<uint64_t>{10 * block, 40 * block});
  uint64_t page_bytes = 0, tail_bytes = 0;
  for (const PagePart& part : Need(client.PageParts(chain, {}))) page_bytes += part.bytes;
  for (const PagePart& part : Need(client.PageParts(chain, {}, marks[0]))) tail_bytes += part.bytes;
  const std::vector<std::byte> bytes(std::max(page_bytes, tail_bytes), std::byte{7});
  const std::vector<ConstPage> pages(marks.back() / block, ConstPage(bytes.data(), page_bytes));
  bool stored = client.StoreWait(chain, 0, pages).pages.back() == PageResult::kOk;
  for (const uint64_t mark : marks) {
    const StoreReport tail = client.StoreTailWait(chain, mark, ConstPage(bytes.data(), tail_bytes), {});
    stored = stored && tail.pages.size() == 1 && tail.pages[0] == PageResult::kOk;
  }
  Check("marks_are_committed", stored);
  const auto hit = [&](std::vector<uint64_t> breakpoints) {
    CallOptions options;
    options.breakpoints = std::move(breakpoints);
    return Need(client.PlanWait(chain, options)).tokens() / block;
  };
  Check("anywhere_without_marks", hit({}) == 40);
  Check("at_a_mark", hit({10 * block}) == 10);
  Check("twenty_blocks_back_from_one", hit({60 * block}) == 40 && hit({61 * block}) == 0);
  Check("the_deepest_of_several", hit({10 * block, 45 * block}) == 40);
  CallOptions five;
  five.breakpoints = {1, 2, 3, 4, 5};
  Check("five_are_refused", client.PlanWait(chain, five).status().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) {
  if (argc != 3 || std::string(argv[1]) != "--router") return 2;
  cistern::ClientOptions connect;
  connect.router = argv[2];
  auto client = cistern::Need(cistern::Client::Connect(connect));
  cistern::StorageForms(*client);
  cistern::Breakpoints(*client);
  std::printf("}\n");
  return 0;
}
