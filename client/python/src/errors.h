#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <utility>

#include "cistern/status.h"

// Statuses as Python exceptions of cistern._errors. With the GIL.
namespace cistern::py {

namespace nb = nanobind;

// The exception object, not raised.
nb::object MakeError(const Status& status);
[[noreturn]] void Raise(const Status& status);
[[noreturn]] inline void RaiseInvalid(std::string message) {
  Raise({Code::kInvalidArgument, std::move(message)});
}

// An int in [0, most]; anything else is named.
inline uint64_t TakeUint(nb::handle value, uint64_t most, const std::string& name) {
  const unsigned long long taken = PyLong_Check(value.ptr()) ? PyLong_AsUnsignedLongLong(value.ptr()) : 0;
  const bool failed = !PyLong_Check(value.ptr()) || PyErr_Occurred() != nullptr;
  if (failed) PyErr_Clear();
  if (failed || taken > most) RaiseInvalid(name + ": an int in [0, " + std::to_string(most) + "] is wanted");
  return taken;
}

template <typename T>
T ValueOrRaise(Result<T>&& result) {
  if (!result.ok()) Raise(result.status());
  return std::move(result.value());
}

}  // namespace cistern::py
