#include "transport/topology.h"

namespace cistern {

std::string_view NearnessName(Nearness nearness) {
  switch (nearness) {
    case Nearness::kSameSwitch:
      return "same PCI switch";
    case Nearness::kSameNuma:
      return "same NUMA node";
    case Nearness::kSameMachine:
      return "another NUMA node";
  }
  return "unknown";
}

}  // namespace cistern
