#include "core/eviction/ghost_table.h"

#include <algorithm>
#include <memory>

#include "core/check.h"

namespace cistern {

GhostTable::GhostTable(uint64_t ghosts) {
  const uint64_t lines = std::max<uint64_t>(ghosts / kWays, 1);
  CISTERN_CHECK(lines <= UINT32_MAX);
  line_count_ = static_cast<uint32_t>(lines);
  // Zeroed by the system page by page, as ghosts come.
  size_t bytes = (lines + 1) * sizeof(Line);
  void* first = std::calloc(lines + 1, sizeof(Line));
  CISTERN_CHECK(first != nullptr);
  memory_.reset(first);
  lines_ = static_cast<Line*>(std::align(alignof(Line), lines * sizeof(Line), first, bytes));
}

uint64_t GhostTable::Mix(uint64_t key) {
  key = (key ^ (key >> 32)) * 0xd6e8feb86659fd93;
  key = (key ^ (key >> 32)) * 0xd6e8feb86659fd93;
  return key ^ (key >> 32);
}

uint32_t GhostTable::Push(uint64_t key, uint32_t value) {
  CISTERN_CHECK(value != 0);
  const uint64_t mixed = Mix(key);
  Ghost* const ways = LineOf(mixed).ways;
  int at = 0;
  while (at < kWays - 1 && ways[at].value != 0) ++at;
  if (at == 0 && ways[0].tag == 0 && ways[0].value == 0) ++lines_used_;
  const uint32_t pushed_out = ways[at].value;
  for (; at > 0; --at) ways[at] = ways[at - 1];
  ways[0] = {static_cast<uint32_t>(mixed), value};
  return pushed_out;
}

uint32_t GhostTable::Take(uint64_t key) {
  const uint64_t mixed = Mix(key);
  Ghost* const ways = LineOf(mixed).ways;
  for (int at = 0; at < kWays && ways[at].value != 0; ++at) {
    if (ways[at].tag != static_cast<uint32_t>(mixed)) continue;
    const uint32_t value = ways[at].value;
    for (; at < kWays - 1; ++at) ways[at] = ways[at + 1];
    ways[kWays - 1] = {};
    return value;
  }
  return 0;
}

}  // namespace cistern
