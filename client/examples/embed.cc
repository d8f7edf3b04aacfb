// The smallest inference server: finds what is cached of a prompt, loads it, "computes" the rest and stores
// it. Builds against the installed package alone: embed ROUTER (HOST:PORT); prints what it did, twice.
#include <cistern/client.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

// Stands for the KV of one block: any bytes that depend on the tokens so far.
void Compute(const std::vector<uint32_t>& tokens, size_t block, size_t block_tokens,
             std::vector<uint8_t>& page) {
  uint32_t state = 2166136261u;
  for (size_t i = 0; i < (block + 1) * block_tokens; ++i) state = (state ^ tokens[i]) * 16777619u;
  for (uint8_t& byte : page) byte = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
}

}  // namespace

int main(int argc, char** argv) {
  cistern::ClientOptions options;
  if (argc > 1) options.router = argv[1];
  auto connected = cistern::Client::Connect(options);
  if (!connected.ok()) {
    std::fprintf(stderr, "embed: %s\n", connected.status().message().c_str());
    return 2;
  }
  cistern::Client& client = *connected.value();

  cistern::Layout layout;
  layout.model = "example";
  layout.block_tokens = 16;
  layout.part_bytes = 64 << 10;
  std::vector<uint32_t> prompt(16 * 12);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<uint32_t>(i * 7 + 1);
  auto chain = client.MakeChain(layout, prompt);
  if (!chain.ok()) return 1;

  for (int turn = 0; turn < 2; ++turn) {
    std::vector<std::vector<uint8_t>> memory(chain.value().blocks(), std::vector<uint8_t>(layout.part_bytes));
    std::vector<cistern::Page> pages;
    for (auto& page : memory) pages.emplace_back(page.data(), page.size());
    const cistern::LoadReport loaded = client.FetchWait(chain.value(), pages);

    std::vector<uint8_t> want(layout.part_bytes);
    std::vector<cistern::ConstPage> fresh;
    uint32_t first_missing = 0;
    while (first_missing < loaded.hit_blocks && loaded.pages[first_missing] == cistern::PageResult::kOk)
      ++first_missing;
    for (uint32_t i = 0; i < memory.size(); ++i) {
      Compute(prompt, i, layout.block_tokens, want);
      if (i < first_missing && memory[i] != want) return 1;  // Never: what is OK was checked.
      if (i < first_missing) continue;
      memory[i] = want;
      fresh.emplace_back(memory[i].data(), memory[i].size());
    }
    const cistern::StoreReport stored = client.StoreWait(chain.value(), first_missing, fresh);
    std::printf("turn %d: %u of %u blocks were cached, %zu stored (%llu bytes)\n", turn, first_missing,
                chain.value().blocks(), stored.pages.size(), static_cast<unsigned long long>(stored.bytes));
    if (turn == 1 && first_missing != chain.value().blocks()) return 1;
  }
  return 0;
}
