#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

// Every *_fuzz.cc of the tree defines the first function below, perhaps the second, and is built twice: with
// driver.cc and the project's compiler as a short, repeatable ctest (label fuzz), and by deploy/fuzz.sh
// with clang's libFuzzer for long runs.

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace cistern {

// No parser may ask for more at one time, whatever an input announces (F29, S13): well above the largest
// legal message. Both kinds of runs have it as their bound; fuzz.sh reads it here.
inline constexpr size_t kFuzzAllocationMibMax = 32;

// Well-formed inputs, by name: what tests/fuzz/corpus/<target> is made of (`<target> --write-corpus DIR`).
// May be absent.
__attribute__((weak)) void FuzzSeeds(
    const std::function<void(const std::string& name, const std::string& bytes)>& add);

}  // namespace cistern

// A claim that must hold for every input. Unlike CISTERN_CHECK it says that the input, not our state, shows
// the bug.
#define FUZZ_REQUIRE(condition)                                                          \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: input breaks: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
