#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/ids.h"

namespace cistern {

inline constexpr uint32_t kLayoutsPerShardMax = 4096;  // SlotRecord::layout has 12 bits.
using LayoutIndex = uint16_t;
inline constexpr LayoutIndex kNoLayout = UINT16_MAX;

// Small numbers for the layouts of the parts a shard holds. A number is free again when its last part is
// gone, so layouts that nobody uses any more cannot fill the table. Owner: RamTier. Thread: the shard's.
class LayoutTable {
 public:
  // kNoLayout when no part here has it.
  LayoutIndex Find(const LayoutId& id) const;
  // One more part of this layout. kNoLayout when kLayoutsPerShardMax others are in use.
  LayoutIndex Hold(const LayoutId& id);
  void Release(LayoutIndex index);
  // The layout of a held number.
  const LayoutId& Id(LayoutIndex index) const { return rows_[index].id; }
  size_t size() const { return numbers_.size(); }

 private:
  struct Row {
    LayoutId id;
    uint64_t parts = 0;
  };
  std::vector<Row> rows_;
  std::vector<LayoutIndex> free_;
  struct Hasher {
    size_t operator()(const LayoutId& id) const { return id.Prefix64(); }
  };
  absl::flat_hash_map<LayoutId, LayoutIndex, Hasher> numbers_;
};

}  // namespace cistern
