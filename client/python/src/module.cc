#include <nanobind/nanobind.h>

#include "client/python/src/page_map.h"
#include "client/python/src/values.h"

NB_MODULE(_cistern, module) {
  module.doc() = "cistern's client library; use the package cistern.";
  nanobind::set_leak_warnings(
      false);  // Threads of engines that still hold a client at exit are no bug of ours.
  cistern::py::BindValues(module);
  cistern::py::BindPages(module);
  cistern::py::BindCalls(module);
}
