#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <vector>

#include "cistern/client.h"

namespace cistern::py {

namespace nb = nanobind;

// Pages ready for calls: made once, used by any number. `owner` keeps the memory they name.
class PageSet {
 public:
  PageSet(std::vector<Page> pages, nb::object owner) : pages_(std::move(pages)), owner_(std::move(owner)) {}
  const std::vector<Page>& pages() const { return pages_; }
  size_t bytes() const;
  // Copies all pages, one after the other, to or from one buffer of exactly bytes(). Without the GIL while
  // copying.
  void CopyTo(nb::handle buffer) const;
  void CopyFrom(nb::handle buffer) const;

 private:
  std::vector<Page> pages_;
  nb::object owner_;
};

// Where an engine keeps its pages: one tensor per layer, all of shape [blocks, slices, ...] with whatever
// strides between blocks and slices, and what lies behind a (block, slice) contiguous. Bytes of a block, in
// the order of a cistern page: [slice][layer]. Immutable. The tensors stay alive as long as this.
class PageMap {
 public:
  explicit PageMap(nb::sequence layers);
  size_t blocks() const { return blocks_; }
  size_t slices() const { return slices_; }
  size_t layers() const { return layers_.size(); }
  size_t piece_bytes() const { return piece_bytes_; }
  size_t block_bytes() const { return piece_bytes_ * slices_ * layers_.size(); }
  // Raises IndexError for a block that is not there, and for those in [0, first_block): an engine's
  // placeholder.
  PageSet Pages(nb::handle self, nb::sequence block_ids, size_t first_block) const;

 private:
  struct Layer {
    std::byte* base;
    int64_t block_stride, slice_stride;  // In bytes.
  };
  std::vector<nb::ndarray<>> tensors_;
  std::vector<Layer> layers_;
  size_t blocks_ = 0, slices_ = 0, piece_bytes_ = 0;
};

void BindPages(nb::module_& module);

}  // namespace cistern::py
