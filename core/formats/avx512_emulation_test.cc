// kernels_avx512.cc once more, over SIMDe instead of the hardware. kernels_test.cc holds it to the scalar
// code like the kernels that machines run.
#define CISTERN_FORMATS_EMULATED
#include "core/formats/testing/avx512_emulation.h"
// Last: it uses what the emulation defines.
#include "core/formats/kernels_avx512.cc"
