#pragma once

#include <cstdint>
#include <vector>

#include "core/check.h"
#include "core/eviction_policy.h"

namespace cistern {

// Neighbours of every entry, for one intrusive list. Owned by a policy; grows to the highest id seen and
// never allocates below that.
class LinkTable {
 public:
  static constexpr EntryId kNotLinked = kNoEntry - 1;  // Above kPolicyEntriesMax.
  struct Links {
    EntryId newer = kNotLinked;
    EntryId older = kNoEntry;
  };
  explicit LinkTable(uint32_t capacity) { links_.reserve(capacity); }

  uint64_t memory_bytes() const { return links_.size() * sizeof(Links); }
  bool IsLinked(EntryId id) const { return id < links_.size() && links_[id].newer != kNotLinked; }
  Links& At(EntryId id) { return links_[id]; }
  const Links& At(EntryId id) const { return links_[id]; }
  void Cover(EntryId id) {
    if (id >= links_.size()) links_.resize(size_t{id} + 1);
  }

 private:
  std::vector<Links> links_;
};

// A queue of entries, newest to oldest.
class LinkList {
 public:
  EntryId oldest() const { return oldest_; }
  uint32_t size() const { return size_; }

  void PushNewest(LinkTable& table, EntryId id) {
    table.Cover(id);
    LinkTable::Links& links = table.At(id);
    CISTERN_CHECK(links.newer == LinkTable::kNotLinked);
    links = {.newer = kNoEntry, .older = newest_};
    if (newest_ != kNoEntry) table.At(newest_).newer = id;
    newest_ = id;
    if (oldest_ == kNoEntry) oldest_ = id;
    ++size_;
  }
  void Remove(LinkTable& table, EntryId id) {
    LinkTable::Links& links = table.At(id);
    CISTERN_CHECK(links.newer != LinkTable::kNotLinked);
    (links.newer == kNoEntry ? newest_ : table.At(links.newer).older) = links.older;
    (links.older == kNoEntry ? oldest_ : table.At(links.older).newer) = links.newer;
    links = {};
    --size_;
  }

 private:
  EntryId newest_ = kNoEntry;
  EntryId oldest_ = kNoEntry;
  uint32_t size_ = 0;
};

}  // namespace cistern
