#pragma once

#include <cstdint>

namespace cistern {

// How many times this process came out of fork() since somebody first asked; no system call. What was made
// under another count belongs to another process: its sockets, eventfds and threads are that one's. Thread:
// any.
uint32_t ForkCount();

}  // namespace cistern
