#include "transport/transport.h"

namespace cistern {

std::string_view PathKindName(PathKind kind) {
  switch (kind) {
    case PathKind::kLoopback:
      return "loopback";
    case PathKind::kSocket:
      return "socket";
    case PathKind::kMap:
      return "map";
    case PathKind::kUcx:
      return "ucx";
  }
  return "unknown";
}

}  // namespace cistern
