#pragma once

#include <chrono>
#include <csignal>

namespace cistern {

// While it lives, the first Ctrl-C only asks the command to end with the result that it has; the second one
// ends the process as ever. Owner: a command, one at a time. Any thread may ask.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool Asked();
  // Sleeps until then, or until it is asked for: a signal may come to any thread, and wakes none for sure.
  static void SleepUntil(std::chrono::steady_clock::time_point until);

 private:
  struct sigaction before_ {};
};

}  // namespace cistern
