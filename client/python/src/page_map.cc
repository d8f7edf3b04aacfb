#include "client/python/src/page_map.h"

#include <nanobind/stl/string.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "client/python/src/errors.h"
#include "client/python/src/gil.h"
#include "client/python/src/lent.h"

namespace cistern::py {

size_t PageSet::bytes() const {
  size_t sum = 0;
  for (const Page& page : pages_) {
    for (const Piece& piece : page.pieces) sum += piece.bytes;
  }
  return sum;
}

void PageSet::CopyTo(nb::handle buffer) const {
  Lent lent;
  const Piece to = lent.Take(buffer, true);
  if (to.bytes != bytes())
    RaiseInvalid("buffer: has " + std::to_string(to.bytes) + " bytes, the pages " + std::to_string(bytes()));
  const GilReleased released;
  auto* at = static_cast<std::byte*>(to.data);
  for (const Page& page : pages_) {
    for (const Piece& piece : page.pieces) {
      std::memcpy(at, piece.data, piece.bytes);
      at += piece.bytes;
    }
  }
}

void PageSet::CopyFrom(nb::handle buffer) const {
  Lent lent;
  const Piece from = lent.Take(buffer, false);
  if (from.bytes != bytes())
    RaiseInvalid("buffer: has " + std::to_string(from.bytes) + " bytes, the pages " +
                 std::to_string(bytes()));
  const GilReleased released;
  const auto* at = static_cast<const std::byte*>(from.data);
  for (const Page& page : pages_) {
    for (const Piece& piece : page.pieces) {
      std::memcpy(piece.data, at, piece.bytes);
      at += piece.bytes;
    }
  }
}

namespace {

// Whether no two pieces of `bytes` at (block, slice) share memory: the nearer ones of two dimensions do not,
// and the others step over all of them. Dimensions of one place have no stride to speak of.
bool AreApart(const nb::ndarray<>& tensor, size_t bytes) {
  struct Step {
    size_t count, bytes;
  };
  std::array<Step, 2> steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i] = {tensor.shape(i), static_cast<size_t>(std::abs(tensor.stride(i))) * tensor.itemsize()};
  }
  if (steps[0].bytes < steps[1].bytes) std::swap(steps[0], steps[1]);
  for (size_t i = steps.size(); i-- > 0;) {
    if (steps[i].count <= 1) continue;
    if (steps[i].bytes < bytes) return false;
    bytes += (steps[i].count - 1) * steps[i].bytes;
  }
  return true;
}

}  // namespace

PageMap::PageMap(nb::sequence layers) {
  for (nb::handle item : layers) {
    const std::string name = "layers[" + std::to_string(layers_.size()) + "]";
    nb::ndarray<> tensor;
    if (!nb::try_cast(item, tensor))
      RaiseInvalid(name + ": exports its memory neither as a buffer nor by DLPack");
    if (tensor.device_type() != nb::device::cpu::value)
      RaiseInvalid(
          name +
          ": is in device memory; pages of devices need an ordering token, which this map does not take");
    if (tensor.ndim() < 3) RaiseInvalid(name + ": shape [blocks, slices, ...] is wanted");
    const auto item_bytes = static_cast<int64_t>(tensor.itemsize());
    int64_t expected = 1;
    for (size_t i = tensor.ndim(); i-- > 2; expected *= static_cast<int64_t>(tensor.shape(i))) {
      if (tensor.shape(i) > 1 && tensor.stride(i) != expected)
        RaiseInvalid(name + ": what lies behind a block and slice is not contiguous (stride of dimension " +
                     std::to_string(i) + ")");
    }
    const auto piece = static_cast<size_t>(expected * item_bytes);
    if (layers_.empty()) {
      blocks_ = tensor.shape(0);
      slices_ = tensor.shape(1);
      piece_bytes_ = piece;
    }
    if (tensor.shape(0) != blocks_ || tensor.shape(1) != slices_ || piece != piece_bytes_)
      RaiseInvalid(name + ": has another shape or type than layers[0]");
    if (!AreApart(tensor, piece)) RaiseInvalid(name + ": some of its blocks or slices share memory");
    layers_.push_back({static_cast<std::byte*>(tensor.data()), tensor.stride(0) * item_bytes,
                       tensor.stride(1) * item_bytes});
    tensors_.push_back(std::move(tensor));
  }
  if (layers_.empty()) RaiseInvalid("layers: none");
  if (blocks_ == 0) RaiseInvalid("layers: 0 blocks");
  if (block_bytes() == 0) RaiseInvalid("layers: 0 bytes a block");
}

PageSet PageMap::Pages(nb::handle self, nb::sequence block_ids, size_t first_block) const {
  std::vector<Page> pages;
  for (nb::handle item : block_ids) {
    nb::object index = nb::steal(PyNumber_Index(item.ptr()));  // numpy's ints too.
    if (!index.is_valid()) {
      PyErr_Clear();
      RaiseInvalid("block_ids[" + std::to_string(pages.size()) + "]: an int is wanted");
    }
    int overflow = 0;
    const long long id = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    if (overflow != 0 || id < 0 || static_cast<uint64_t>(id) < first_block ||
        static_cast<uint64_t>(id) >= blocks_)
      throw nb::index_error(("block " + nb::cast<std::string>(nb::str(index)) + " is not in [" +
                             std::to_string(first_block) + ", " + std::to_string(blocks_) + ")")
                                .c_str());
    Page page;
    page.pieces.reserve(slices_ * layers_.size());
    for (size_t slice = 0; slice < slices_; ++slice) {
      for (const Layer& layer : layers_)
        page.pieces.push_back(
            {layer.base + id * layer.block_stride + static_cast<int64_t>(slice) * layer.slice_stride,
             piece_bytes_});
    }
    pages.push_back(std::move(page));
  }
  return {std::move(pages), nb::borrow(self)};
}

void BindPages(nb::module_& module) {
  using nb::literals::operator""_a;
  nb::class_<PageSet>(module, "PageSet")
      .def("__len__", [](const PageSet& set) { return set.pages().size(); })
      .def_prop_ro("nbytes", &PageSet::bytes)
      .def("copy_to", &PageSet::CopyTo, "buffer"_a)
      .def("copy_from", &PageSet::CopyFrom, "buffer"_a);
  nb::class_<PageMap>(module, "PageMap")
      .def(nb::init<nb::sequence>(), "layers"_a)
      .def_prop_ro("blocks", &PageMap::blocks)
      .def_prop_ro("slices", &PageMap::slices)
      .def_prop_ro("layers", &PageMap::layers)
      .def_prop_ro("piece_bytes", &PageMap::piece_bytes)
      .def_prop_ro("block_bytes", &PageMap::block_bytes)
      .def(
          "pages",
          [](nb::handle self, nb::sequence ids, size_t first_block) {
            return nb::cast<const PageMap&>(self).Pages(self, ids, first_block);
          },
          "block_ids"_a, nb::kw_only(), "first_block"_a = 0);
}

}  // namespace cistern::py
