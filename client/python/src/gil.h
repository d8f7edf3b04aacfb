#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

// Threads that want the GIL back while the interpreter ends: up to 3.13 Python ends them by pthread_exit,
// whose unwinding is a std::terminate in frames that throw nothing, as destructors and nanobind's are; a
// little later there is nothing left to ask. They stay where they are, as from 3.14 on; the process ends
// without them.
namespace cistern::py {

// This thread is the one that ends the interpreter: nobody else can hold the GIL by then.
inline thread_local bool t_is_ending = false;

[[noreturn]] inline void Stay() {
  for (;;) pause();
}

// Whatever may run Python's code, or wait for the GIL, below frames of ours.
template <typename Work>
void RunOrStay(Work&& work) {
  try {
    work();
  } catch (abi::__forced_unwind&) {
    Stay();  // Here: whoever leaves this block without throwing on is ended by the C library.
  }
}

template <typename Take>
void TakeGilOrStay(Take&& take) {
  if (Py_IsInitialized() == 0 && !t_is_ending) Stay();
  RunOrStay(take);
}

// The GIL is released as long as this lives. Thread: one that holds it.
class GilReleased {
 public:
  GilReleased() {
    if (Py_IsInitialized() == 0) t_is_ending = true;
    state_ = PyEval_SaveThread();
  }
  ~GilReleased() {
    TakeGilOrStay([this] { PyEval_RestoreThread(state_); });
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_ = nullptr;
};

// The GIL is held as long as this lives. Any thread.
class GilTaken {
 public:
  GilTaken() {
    TakeGilOrStay([this] { state_ = PyGILState_Ensure(); });
  }
  ~GilTaken() { PyGILState_Release(state_); }
  GilTaken(const GilTaken&) = delete;
  GilTaken& operator=(const GilTaken&) = delete;

 private:
  PyGILState_STATE state_{};
};

}  // namespace cistern::py
