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

RetentionBook::RetentionBook(Manifest& manifest, uint32_t now_unix_s, Random& random)
    : manifest_(manifest), rows_(random) {
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
  Row* const known = rows_.Find(block);
  if (known == nullptr) {
    if (rows_.size() >= kTimedBlocksMax) return false;
    ends_.emplace(row.expires_unix_s, block);
    Tell(block, rows_[block] = row);
    return true;
  }
  const bool same = known->expires_unix_s == row.expires_unix_s && known->ttl_s == row.ttl_s &&
                    known->sliding == row.sliding;
  if (!same) Tell(block, *known = row);
  return true;
}

void RetentionBook::Slide(const BlockHash& block, uint32_t expires_unix_s) {
  Row* const known = rows_.Find(block);
  if (known == nullptr || !known->sliding) return;
  Row& row = *known;
  row.expires_unix_s = std::max(row.expires_unix_s, expires_unix_s);
  if (row.expires_unix_s > uint64_t{row.told_unix_s} + row.ttl_s / kTellAfter) Tell(block, row);
}

std::optional<BlockHash> RetentionBook::TakeExpired(uint32_t now_unix_s, uint64_t& looks) {
  for (; looks > 0 && !ends_.empty() && ends_.top().first <= now_unix_s; --looks) {
    const auto [at, block] = ends_.top();
    ends_.pop();
    const Row* const row = rows_.Find(block);
    if (row == nullptr) continue;
    if (row->expires_unix_s > at) {  // It has moved meanwhile.
      ends_.emplace(row->expires_unix_s, block);
      continue;
    }
    rows_.Erase(block);
    manifest_.Delete(KeyOf(block));
    --looks;
    return block;
  }
  return std::nullopt;
}

}  // namespace cistern
