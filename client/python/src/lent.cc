#include "client/python/src/lent.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <string>

#include "client/python/src/errors.h"
#include "client/python/src/page_map.h"

namespace cistern::py {
namespace {

std::string TypeName(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

// Whether a buffer's elements, or fields of them, are Python's own pointers. Names of fields stand between
// colons.
bool HoldsObjects(nb::handle object) {
  if (PyBytes_Check(object.ptr()) || PyByteArray_Check(object.ptr())) return false;
  Py_buffer buffer;
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();  // A type without a format, as numpy's dates.
    return false;
  }
  bool found = false, in_name = false;
  for (const char* at = buffer.format == nullptr ? "" : buffer.format; *at != 0; ++at) {
    if (*at == ':') in_name = !in_name;
    if (*at == 'O' && !in_name) found = true;
  }
  PyBuffer_Release(&buffer);
  return found;
}

// Token ids are at most 32 bits wide.
uint32_t Token(int64_t value) {
  if (value < 0 || value > int64_t{UINT32_MAX})
    RaiseInvalid("tokens: " + std::to_string(value) + " is not in [0, 2^32)");
  return static_cast<uint32_t>(value);
}

}  // namespace

Lent::~Lent() {
  for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
}

Piece Lent::Take(nb::handle object, bool writable) {
  if (PyObject_CheckBuffer(object.ptr())) {
    Py_buffer buffer;
    // In C order alone: memory in another order would be other elements to who reads it in this one.
    if (PyObject_GetBuffer(object.ptr(), &buffer,
                           writable ? PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS : PyBUF_C_CONTIGUOUS) != 0) {
      PyErr_Clear();
      RaiseInvalid(TypeName(object) + ": not contiguous memory in C order" +
                   (writable ? " that may be written" : ""));
    }
    if (HoldsObjects(object)) {
      PyBuffer_Release(&buffer);
      RaiseInvalid(TypeName(object) + ": holds Python objects, whose addresses mean nothing elsewhere");
    }
    buffers_.push_back(buffer);
    return {buffer.buf, static_cast<size_t>(buffer.len)};
  }
  if (!nb::hasattr(object, "__dlpack__"))
    RaiseInvalid(TypeName(object) + ": has neither the buffer protocol nor __dlpack__");
  nb::ndarray<> array;
  if (!nb::try_cast(object, array)) {
    PyErr_Clear();
    RaiseInvalid(TypeName(object) +
                 ": does not export its memory by DLPack (a tensor that requires grad? detach it)");
  }
  if (array.device_type() != nb::device::cpu::value)
    RaiseInvalid(TypeName(object) +
                 ": device memory needs an ordering token (stream), which this call does not take");
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 0; expected *= static_cast<int64_t>(array.shape(i))) {
    if (array.shape(i) > 1 && array.stride(i) != expected)
      RaiseInvalid(TypeName(object) + ": not contiguous memory");
  }
  const Piece piece{array.data(), array.nbytes()};
  arrays_.push_back(std::move(array));
  return piece;
}

std::vector<Page> TakePages(nb::handle pages, bool writable, Lent& lent) {
  if (nb::isinstance<PageSet>(pages)) {
    lent.Keep(nb::borrow(pages));
    return nb::cast<const PageSet&>(pages).pages();
  }
  std::vector<Page> out;
  if (!nb::isinstance<nb::sequence>(pages) || PyObject_CheckBuffer(pages.ptr()))
    RaiseInvalid("pages: a sequence of buffers, or of lists of buffers, is wanted, not " + TypeName(pages));
  for (nb::handle item : pages) {
    Page page;
    if (PyList_Check(item.ptr()) || PyTuple_Check(item.ptr())) {
      for (nb::handle piece : item) page.pieces.push_back(lent.Take(piece, writable));
    } else {
      page.pieces.push_back(lent.Take(item, writable));
    }
    out.push_back(std::move(page));
  }
  return out;
}

Tokens::Tokens(nb::handle tokens) {
  if (!PyObject_CheckBuffer(tokens.ptr()) || !TakeBuffer(tokens)) TakeSequence(tokens);
}
Tokens::~Tokens() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

bool Tokens::TakeBuffer(nb::handle tokens) {
  if (PyObject_GetBuffer(tokens.ptr(), &buffer_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    RaiseInvalid("tokens: not contiguous memory");
  }
  const char* format = buffer_.format == nullptr ? "B" : buffer_.format;
  if (*format == '<' || *format == '@' || *format == '=') ++format;
  const size_t count = buffer_.itemsize == 0 ? 0 : static_cast<size_t>(buffer_.len / buffer_.itemsize);
  if (std::strchr("iIlLqQ", *format) == nullptr || format[1] != 0 ||
      (buffer_.itemsize != 4 && buffer_.itemsize != 8))
    RaiseInvalid("tokens: a buffer of 32 or 64 bit integers is wanted, not of format '" +
                 std::string(format) + "'");
  if (buffer_.itemsize == 4) {
    span_ = {static_cast<const uint32_t*>(buffer_.buf), count};
    if (std::strchr("il", *format) != nullptr) {  // Signed: none may be negative.
      for (const uint32_t token : span_) Token(static_cast<int32_t>(token));
    }
    return true;
  }
  copied_.reserve(count);
  for (size_t i = 0; i < count; ++i) copied_.push_back(Token(static_cast<const int64_t*>(buffer_.buf)[i]));
  span_ = copied_;
  return true;
}

void Tokens::TakeSequence(nb::handle tokens) {
  if (PySequence_Check(tokens.ptr()) == 0)  // A set's order is nobody's.
    RaiseInvalid("tokens: a sequence of ints or a buffer is wanted, not " + TypeName(tokens));
  nb::object fast =
      nb::steal(PySequence_Fast(tokens.ptr(), "tokens: a sequence of ints or a buffer is wanted"));
  if (!fast.is_valid()) throw nb::python_error();
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast.ptr());
  PyObject** items = PySequence_Fast_ITEMS(fast.ptr());
  copied_.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    const long long value = PyLong_AsLongLong(items[i]);
    if (value == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      RaiseInvalid("tokens[" + std::to_string(i) + "]: not an int in [0, 2^32)");
    }
    copied_.push_back(Token(value));
  }
  span_ = copied_;
}

}  // namespace cistern::py
