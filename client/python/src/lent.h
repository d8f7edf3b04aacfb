#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <vector>

#include "cistern/client.h"

namespace cistern::py {

namespace nb = nanobind;

// Memory that Python objects lend to calls: taken by the buffer protocol, or by DLPack where an object has
// only that, never copied. Everything stays exported until this goes. Lives and dies with the GIL held.
class Lent {
 public:
  Lent() = default;
  ~Lent();
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  // One object's memory. Raises when it is not contiguous, not in host memory, or (`writable`) read-only.
  Piece Take(nb::handle object, bool writable);
  void Keep(nb::object object) { objects_.push_back(std::move(object)); }

 private:
  std::vector<Py_buffer> buffers_;
  std::vector<nb::ndarray<>> arrays_;
  std::vector<nb::object> objects_;
};

// Pages for a call: a PageSet, or a sequence whose items are pages, each one buffer or a list or tuple of
// buffers.
std::vector<Page> TakePages(nb::handle pages, bool writable, Lent& lent);
inline std::vector<ConstPage> AsConst(const std::vector<Page>& pages) {
  std::vector<ConstPage> out(pages.size());
  for (size_t i = 0; i < pages.size(); ++i) {
    for (const Piece& piece : pages[i].pieces) out[i].pieces.push_back({piece.data, piece.bytes});
  }
  return out;
}

// Token ids: a buffer of 4-byte integers is read where it lies, one of 8-byte integers or a sequence of ints
// is converted.
class Tokens {
 public:
  explicit Tokens(nb::handle tokens);
  ~Tokens();
  Tokens(const Tokens&) = delete;
  Tokens& operator=(const Tokens&) = delete;
  std::span<const uint32_t> span() const { return span_; }

 private:
  bool TakeBuffer(nb::handle tokens);
  void TakeSequence(nb::handle tokens);

  Py_buffer buffer_{};
  std::vector<uint32_t> copied_;
  std::span<const uint32_t> span_;
};

}  // namespace cistern::py
