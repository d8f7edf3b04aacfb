#include "proto/layout_catalog.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/check.h"
#include "core/layout/encoding.h"
#include "core/status_macros.h"
#include "proto/layout_catalog_data.h"
#include "proto/layout_text.h"

namespace cistern {
namespace {

std::vector<ShippedLayout> ParseAll() {
  std::vector<ShippedLayout> all;
  for (const EmbeddedText& embedded : EmbeddedLayouts()) {
    absl::StatusOr<layout::Layout> layout = ParseLayoutText(embedded.text, embedded.name);
    CISTERN_CHECK(layout.ok());  // Every file is parsed by a test before it is shipped.
    const LayoutId id = layout::ComputeId(*layout);
    all.push_back({std::string(embedded.name), std::string(embedded.text), *std::move(layout), id});
  }
  return all;
}

absl::Status NoLayout(std::string_view name) {
  std::vector<std::string> near, all;
  for (const ShippedLayout& one : ShippedLayouts()) {
    all.push_back(one.name);
    if (one.name.find(name) != std::string::npos) near.push_back(one.name);
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no layout '", std::string(name), "'; ", near.empty() ? "there are " : "near it are ",
      absl::StrJoin(near.empty() ? all : near, ", "), "; a file's name has a / or ends in .textproto"));
}

}  // namespace

const std::vector<ShippedLayout>& ShippedLayouts() {
  static const std::vector<ShippedLayout>* const kAll = new std::vector<ShippedLayout>(ParseAll());
  return *kAll;
}

absl::StatusOr<ShippedLayout> ReadLayoutFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return absl::NotFoundError(absl::StrCat("there is no layout file ", path));
  if (std::filesystem::file_size(path, error) > kLayoutTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": above the limit of ", kLayoutTextBytesMax, " bytes for a layout's text"));
  }
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad())
    return absl::NotFoundError(absl::StrCat("cannot read layout file ", path));
  CISTERN_ASSIGN_OR_RETURN(layout::Layout layout, ParseLayoutText(text, path));
  const LayoutId id = layout::ComputeId(layout);
  return ShippedLayout{std::filesystem::path(path).stem().string(), std::move(text), std::move(layout), id};
}

absl::StatusOr<ShippedLayout> FindLayout(std::string_view name) {
  if (name.find('/') != std::string_view::npos && name.find(':') == std::string_view::npos)
    return ReadLayoutFile(std::string(name));
  if (name.ends_with(".textproto")) return ReadLayoutFile(std::string(name));
  for (const ShippedLayout& one : ShippedLayouts()) {
    if (one.name == name) return one;
  }
  const size_t colon = name.find(':');
  if (colon != std::string_view::npos) return FindLayout(name.substr(0, colon), name.substr(colon + 1));
  return FindLayout(name, "");
}

absl::StatusOr<ShippedLayout> FindLayout(std::string_view model, std::string_view rows) {
  std::vector<std::string> known;
  for (const ShippedLayout& one : ShippedLayouts()) {
    if (one.layout.model != model) continue;
    if (rows.empty() ? one.layout.served : one.layout.rows == rows) return one;
    known.push_back(one.layout.rows);
  }
  if (known.empty()) return NoLayout(model);
  return absl::NotFoundError(absl::StrCat(std::string(model), " has no rows '", std::string(rows),
                                          "'; there are ", absl::StrJoin(known, ", ")));
}

}  // namespace cistern
