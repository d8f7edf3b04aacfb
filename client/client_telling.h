#pragma once

#include <functional>
#include <memory>
#include <new>
#include <tuple>
#include <utility>

#include "client/client_impl.h"
#include "core/make_room.h"

namespace cistern {

inline void SayNoMemory(Status& status) { status = {Code::kResourceExhausted, "out of memory"}; }
inline void SayNoMemory(PageResult& result) { result = PageResult::kBusy; }
template <typename Report>
void SayNoMemory(Report& report) {
  SayNoMemory(report.status);
}

// The end of a call with a callback. All that it needs is there from the start, its place in Impl::ready_
// too, so that an end without memory for its report is told as that. Owners: the submission, and the core's
// callbacks of the call; where the last of them goes untold, for want of memory on the way, it is told then.
// Under the client's lock.
template <typename... Args>
class Telling {
 public:
  Telling(Client::Impl& impl, std::function<void(Args...)> done)
      : impl_(impl), told_(std::make_shared<Told>(Told{std::move(done), {}})), run_([told = told_] {
          if (told->done) std::apply(told->done, std::move(told->args));
        }) {
    SayNoMemory(std::get<0>(told_->args));
  }
  ~Telling() { End(); }
  Telling(const Telling&) = delete;
  Telling& operator=(const Telling&) = delete;

  // make: gives the callback's arguments. False: there was no memory for them.
  template <typename Make>
  bool Tell(Make&& make) {
    bool made = true;
    try {
      told_->args = make();
    } catch (const std::bad_alloc&) {
      made = false;
    }
    End();
    return made;
  }
  // The submission throws: that is the answer.
  void Forsake() { run_ = nullptr; }

 private:
  struct Told {
    std::function<void(Args...)> done;
    std::tuple<Args...> args;
  };
  void End() {
    impl_.mutex_.AssertHeld();
    if (run_ != nullptr) impl_.ready_.push_back(std::exchange(run_, nullptr));
  }

  Client::Impl& impl_;
  const std::shared_ptr<Told> told_;  // Owners: this and run_.
  std::function<void()> run_;         // Null: told.
};

template <typename... Args, typename Submission>
CallId Client::Impl::Call(std::function<void(Args...)> done, Submission&& submit) {
  return Locked([&]() -> OpId {
    mutex_.AssertHeld();
    const auto telling = std::make_shared<Telling<Args...>>(*this, std::move(done));
    try {
      MakeRoom(ready_, core_->outstanding() + 1);  // A call untold has an operation under way.
      return submit(telling);
    } catch (...) {
      telling->Forsake();
      throw;
    }
  });
}

}  // namespace cistern
