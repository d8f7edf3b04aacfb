#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

// The operators of a test program whose threads may be told at which allocation memory ends, once. In one
// source file of it.
namespace {
thread_local int64_t t_allocations_left = -1;                   // Below 0: as many as wanted.
[[maybe_unused]] thread_local bool t_memory_stays_out = false;  // Then it does not end once, but for good.

[[maybe_unused]] void* Take(size_t bytes) {
  if (t_allocations_left == 0) {
    if (!t_memory_stays_out) t_allocations_left = -1;
    throw std::bad_alloc();
  }
  if (t_allocations_left > 0) --t_allocations_left;
  void* memory = std::malloc(std::max<size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[maybe_unused]] void* TryTake(size_t bytes) noexcept {
  try {
    return Take(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
}  // namespace
// ThreadSanitizer keeps its own: it knows of gRPC's memory by the library that frees it, and that would be
// we.
#if !defined(__SANITIZE_THREAD__)
// All that these deletes may be given, or AddressSanitizer's own operators would have made some of it. Not
// inlined, or GCC sees a free of what its own operator new gave.
[[gnu::noinline]] void* operator new(size_t bytes) { return Take(bytes); }
[[gnu::noinline]] void* operator new[](size_t bytes) { return Take(bytes); }
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return TryTake(bytes); }
[[gnu::noinline]] void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return TryTake(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
#endif
