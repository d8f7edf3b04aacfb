#include "cache_node/layout_table.h"

#include "core/check.h"

namespace cistern {

LayoutIndex LayoutTable::Find(const LayoutId& id) const {
  const auto it = numbers_.find(id);
  return it == numbers_.end() ? kNoLayout : it->second;
}

LayoutIndex LayoutTable::Hold(const LayoutId& id) {
  if (const auto it = numbers_.find(id); it != numbers_.end()) {
    ++rows_[it->second].parts;
    return it->second;
  }
  LayoutIndex index = kNoLayout;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (rows_.size() < kLayoutsPerShardMax) {
    index = static_cast<LayoutIndex>(rows_.size());
    rows_.emplace_back();
  } else {
    return kNoLayout;
  }
  rows_[index] = Row{.id = id, .parts = 1};
  numbers_.emplace(id, index);
  return index;
}

void LayoutTable::Release(LayoutIndex index) {
  Row& row = rows_[index];
  CISTERN_CHECK(row.parts > 0);
  if (--row.parts != 0) return;
  numbers_.erase(row.id);
  free_.push_back(index);
}

}  // namespace cistern
