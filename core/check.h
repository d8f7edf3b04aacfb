#pragma once

#include <cstdio>
#include <cstdlib>

// For bugs of ours only; stays on in release. Input from a wire, a disk or a peer is validated, never
// checked.
#define CISTERN_CHECK(condition)                                                         \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
