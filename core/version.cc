#include "core/version.h"

namespace cistern {

const char kVersion[] = CISTERN_VERSION;

}  // namespace cistern
