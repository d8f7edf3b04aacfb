#include "cistern/client.h"
#include "cistern/storage_form.h"

// libcistern.so is made of the archive cistern_client; a shared library needs one source of its own. It also
// proves that the installed headers stand alone.
namespace cistern {
static_assert(sizeof(PageResult) == 1);
}  // namespace cistern
