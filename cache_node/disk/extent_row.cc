#include "cache_node/disk/extent_row.h"

#include <array>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cistern {
namespace {

constexpr std::string_view kPrefix = "extent/";
constexpr size_t kDigits = 8;
// By ExtentState.
constexpr std::array<std::string_view, 5> kStateNames = {"free", "open", "sealed", "leaving", "unreadable"};

// What stands behind " NAME=" up to the next space; empty when it is not there.
std::string_view Field(std::string_view text, std::string_view name) {
  const size_t at = text.find(std::string(" ").append(name).append("="));
  if (at == std::string_view::npos) return {};
  const std::string_view value = text.substr(at + name.size() + 2);
  return value.substr(0, value.find(' '));
}

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string ExtentRowKey(FileId file) {
  return absl::StrCat(Absl(kPrefix), absl::Hex(file, absl::kZeroPad8));
}

std::optional<FileId> ExtentOfRowKey(std::string_view key) {
  uint64_t file = 0;
  if (key.substr(0, kPrefix.size()) != kPrefix || key.size() != kPrefix.size() + kDigits ||
      !absl::SimpleHexAtoi(Absl(key.substr(kPrefix.size())), &file)) {
    return std::nullopt;
  }
  return static_cast<FileId>(file);
}

std::string EncodeExtentRow(const ExtentRow& row) {
  std::string text = absl::StrCat(Absl(kStateNames[static_cast<size_t>(row.state)]), " life=", row.life);
  if (row.nonce.has_value()) absl::StrAppend(&text, " nonce=", absl::Hex(*row.nonce, absl::kZeroPad16));
  absl::StrAppend(&text, " data_end=", row.data_end, " records=", row.records);
  return text;
}

std::optional<ExtentRow> DecodeExtentRow(std::string_view text) {
  ExtentRow row;
  const std::string_view name = text.substr(0, text.find(' '));
  size_t state = 0;
  while (state < kStateNames.size() && kStateNames[state] != name) ++state;
  if (state == kStateNames.size() || !absl::SimpleAtoi(Absl(Field(text, "life")), &row.life))
    return std::nullopt;
  row.state = static_cast<ExtentState>(state);
  uint64_t nonce = 0;
  if (absl::SimpleHexAtoi(Absl(Field(text, "nonce")), &nonce)) row.nonce = nonce;
  (void)absl::SimpleAtoi(Absl(Field(text, "data_end")), &row.data_end);
  (void)absl::SimpleAtoi(Absl(Field(text, "records")), &row.records);
  return row;
}

FoundExtent FoundIn(const ExtentScan& scan) {
  return {.there = true,
          .known = scan.known(),
          .foreign = scan.foreign(),
          .header_good = scan.header_good(),
          .free = scan.free(),
          .use = scan.use()};
}

std::optional<ExtentUse> UseToLookFor(const std::optional<ExtentRow>& row, const FoundExtent& found) {
  if (!row.has_value() || !row->nonce.has_value()) return std::nullopt;
  if (!found.there || found.foreign || found.header_good) return std::nullopt;
  const bool open = row->state == ExtentState::kOpen && (!found.known || found.use.life < row->life);
  if (!open && (row->state != ExtentState::kSealed || found.known)) return std::nullopt;
  return ExtentUse{.life = row->life, .nonce = *row->nonce};
}

bool IsStale(const std::optional<ExtentRow>& row, const FoundExtent& found) {
  if (!found.known || found.foreign || found.header_good) return false;
  if (found.free) return true;
  if (!row.has_value()) return false;
  const uint64_t life = found.use.life;
  return row->state == ExtentState::kFree ? life <= row->life
                                          : row->state == ExtentState::kOpen && life < row->life;
}

bool IsTold(const std::optional<ExtentRow>& row, ExtentState state, const ExtentUse& use) {
  return row.has_value() && row->state == state && row->life == use.life && row->nonce == use.nonce;
}

std::string_view WhyLost(const std::optional<ExtentRow>& told, const FoundExtent& found) {
  if (!told.has_value()) return "";
  const ExtentRow& row = *told;
  const bool empty = row.state == ExtentState::kFree;
  if (!found.there) return empty ? "" : "its file is gone, or cut short";
  if (found.foreign) return empty ? "" : "another extent's file is in its place";
  const bool sealed = row.state == ExtentState::kSealed;
  if (!found.known) return sealed ? "nothing in its file says which extent it is" : "";
  if (found.use.life > row.life) return "";
  // What was free when it was opened may be free still: the header is written with the first records.
  if (found.free && !sealed) return "";
  if (found.use.life < row.life) return "an older copy of its file is in its place";
  if (row.nonce.has_value() && found.use.nonce != *row.nonce) return "another log's file is in its place";
  return empty && !found.free ? "a copy of its file from before it was emptied is in its place" : "";
}

}  // namespace cistern
