#include "cache_node/disk/retention_book.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/hex.h"

namespace cistern {
namespace {

constexpr char kKeyPrefix[] = "ttl/";
constexpr uint32_t kTellAfter = 4;  // A sliding end is told when it has moved by 1 / 4 of its time.

std::string KeyOf(const BlockHash& block) { return absl::StrCat(kKeyPrefix, ToHex(block)); }

std::optional<BlockHash> BlockOf(const std::string& key) {
  return IdFromHex<BlockHash>(key.substr(sizeof(kKeyPrefix) - 1));
}

}  // namespace

RetentionBook::RetentionBook(Manifest& manifest, uint32_t now_unix_s) : manifest_(manifest) {
  for (const auto& [key, value] : manifest.loaded()) {
    if (!absl::StartsWith(key, kKeyPrefix)) continue;
    Row row;
    unsigned sliding = 0;
    const int fields =
        std::sscanf(value.c_str(), "expires=%u ttl=%u sliding=%u", &row.expires_unix_s, &row.ttl_s, &sliding);
    const std::optional<BlockHash> block = BlockOf(key);
    if (fields != 3 || !block.has_value() || row.expires_unix_s <= now_unix_s ||
        rows_.size() >= kTimedBlocksMax) {
      manifest_.Delete(key);
      continue;
    }
    row.sliding = sliding != 0;
    row.told_unix_s = row.expires_unix_s;
    // A wall clock that was set back must not make it live longer.
    row.expires_unix_s =
        static_cast<uint32_t>(std::min<uint64_t>(row.expires_unix_s, uint64_t{now_unix_s} + row.ttl_s));
    rows_[*block] = row;
    ends_.emplace(row.expires_unix_s, *block);
  }
}

void RetentionBook::Tell(const BlockHash& block, Row& row) {
  row.told_unix_s = row.expires_unix_s;
  manifest_.Put(KeyOf(block), absl::StrCat("expires=", row.expires_unix_s, " ttl=", row.ttl_s,
                                           " sliding=", row.sliding ? 1 : 0));
}

bool RetentionBook::Set(const BlockHash& block, const Row& row) {
  const auto it = rows_.find(block);
  if (it == rows_.end()) {
    if (rows_.size() >= kTimedBlocksMax) return false;
    ends_.emplace(row.expires_unix_s, block);
    Tell(block, rows_[block] = row);
    return true;
  }
  const bool same = it->second.expires_unix_s == row.expires_unix_s && it->second.ttl_s == row.ttl_s &&
                    it->second.sliding == row.sliding;
  if (!same) Tell(block, it->second = row);
  return true;
}

void RetentionBook::Slide(const BlockHash& block, uint32_t expires_unix_s) {
  const auto it = rows_.find(block);
  if (it == rows_.end() || !it->second.sliding) return;
  Row& row = it->second;
  row.expires_unix_s = std::max(row.expires_unix_s, expires_unix_s);
  if (row.expires_unix_s > uint64_t{row.told_unix_s} + row.ttl_s / kTellAfter) Tell(block, row);
}

const RetentionBook::Row* RetentionBook::Find(const BlockHash& block) const {
  const auto it = rows_.find(block);
  return it == rows_.end() ? nullptr : &it->second;
}

void RetentionBook::TakeExpired(uint32_t now_unix_s, size_t max, std::vector<BlockHash>& ended) {
  ended.clear();
  while (!ends_.empty() && ends_.top().first <= now_unix_s && ended.size() < max) {
    const auto [at, block] = ends_.top();
    ends_.pop();
    const auto it = rows_.find(block);
    if (it == rows_.end()) continue;
    if (it->second.expires_unix_s > at) {  // It has moved meanwhile.
      ends_.emplace(it->second.expires_unix_s, block);
      continue;
    }
    rows_.erase(it);
    manifest_.Delete(KeyOf(block));
    ended.push_back(block);
  }
}

}  // namespace cistern
