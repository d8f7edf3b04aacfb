#pragma once

namespace cistern {

// Seconds of processor time that this process has used, in user and kernel mode, over all its threads.
double ProcessCpuSeconds();

}  // namespace cistern
