#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "cistern/client.h"

namespace cistern::py {

namespace nb = nanobind;

// What a load, fetch or store did, for Python.
struct Report {
  uint32_t hit_blocks = 0;
  uint64_t bytes = 0;
  std::vector<PageResult> pages;
};
// Raises when the call as a whole was refused.
Report TakeReport(LoadReport&& report);
Report TakeReport(StoreReport&& report);

// [(kind, block, offset, value)] as ChainExtra.
std::vector<ChainExtra> TakeExtras(nb::handle extras);

// Layout, Chain, Hit, Report.
void BindValues(nb::module_& module);
// Client and the memory it hands out.
void BindCalls(nb::module_& module);

}  // namespace cistern::py
