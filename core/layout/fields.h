#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/layout/layout.h"

namespace cistern::layout {

// Every field of a layout by its path ("groups[0].segments[1].planes[0].dtype") and its value as text, in the
// order of the layout: what Validate's messages speak of, and what two layouts are compared by.
std::vector<std::pair<std::string, std::string>> ListFields(const Layout& layout);

struct FieldChange {
  std::string path{};
  std::string before{};  // Empty: not there.
  std::string after{};
  bool in_id = true;  // False for names and hints that the LayoutId does not cover.
  friend bool operator==(const FieldChange&, const FieldChange&) = default;
};
// What differs, in the order of `before`'s fields, then what only `after` has.
std::vector<FieldChange> Diff(const Layout& before, const Layout& after);

// "0-2,6,10": runs of ids in short.
std::string FormatIds(const std::vector<uint32_t>& ids);

}  // namespace cistern::layout
