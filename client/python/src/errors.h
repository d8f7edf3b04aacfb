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

template <typename T>
T ValueOrRaise(Result<T>&& result) {
  if (!result.ok()) Raise(result.status());
  return std::move(result.value());
}

}  // namespace cistern::py
