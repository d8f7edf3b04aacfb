#pragma once

#include <cstddef>

namespace cistern {

inline constexpr size_t kHeldFdsMax = 256;

// Numbers of descriptors that UCX has closed and that nothing gets yet: the last kHeldFdsMax, or an eighth of
// what the process may open where that is less. Thread: any. 0 for ever: UCX was in the process before us,
// and goes by its own ucs_close_fd.
size_t HeldFds();

}  // namespace cistern
