#pragma once

#include <memory>
#include <string>

#include "tests/sim/sim_client.h"

namespace cistern {

// One call that is out. Shared by the list of calls out and by the call's callback.
struct SimClient::Call {
  const char* kind = "";
  uint64_t number = 0;
  const SimChain* chain = nullptr;
  Nanos begun = 0;
  Nanos deadline = 0;
  bool cancelled = false;
  int ended = 0;
  uint32_t asked = 0;
  uint32_t visible = 0;  // Leading blocks that must hit (calm runs).
  std::shared_ptr<SimPages> pages;
};

}  // namespace cistern
