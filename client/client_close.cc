#include <time.h>

#include <atomic>
#include <exception>
#include <utility>
#include <vector>

#include "cistern/client.h"
#include "client/client_impl.h"

// How a client ends: with calls of other threads under way, from inside a callback, and in a child of fork().
namespace cistern {
namespace {

constexpr Nanos kCloseWaitMax = 10 * kSecond;  // For threads that are inside a callback of the user.
constexpr long kCloseLookNs = 100'000;

thread_local Client::Impl::Entry* t_innermost = nullptr;

// What could not be freed stays reachable, so that searches for leaks find none.
std::atomic<Client::Impl*> g_kept{nullptr};

// Under which ForkCount this process, or the one it was forked from, first spoke gRPC.
std::atomic<int64_t> g_grpc_since{-1};

}  // namespace

Status ForkedStatus() {
  return {Code::kFailedPrecondition,
          "connected before fork(), in another process: fork before you connect, or exec"};
}

Status ClaimGrpc() {
  int64_t since = -1;
  const int64_t now = ForkCount();
  if (g_grpc_since.compare_exchange_strong(since, now) || since == now) return {};
  return {
      Code::kFailedPrecondition,
      "this process was forked from one that has had a client, and gRPC does not work on in a child: fork "
      "before you connect, or exec"};
}

Client::Impl::Entry::Entry(Impl* impl, Kind kind)
    : impl_(impl->Forked() ? nullptr : impl), outer_(t_innermost), kind_(kind) {
  if (impl_ == nullptr) return;
  impl_->inside_.fetch_add(1, std::memory_order_acquire);
  t_innermost = this;
}

Client::Impl::Entry::~Entry() {
  if (!entered_) return;
  t_innermost = outer_;
  // The last access to the client: Close may free it from here on.
  if (impl_ != nullptr) impl_->inside_.fetch_sub(1, std::memory_order_release);
}

uint32_t Client::Impl::MyEntries(bool& waits) const {
  uint32_t mine = 0;
  waits = false;
  for (const Entry* entry = t_innermost; entry != nullptr; entry = entry->outer_) {
    if (entry->impl_ != this) continue;
    ++mine;
    waits |= entry->kind_ != Entry::Kind::kPoll;
  }
  return mine;
}

void Client::Impl::EndCalls() {
  // Every call ends; what the core says then is run without the lock, when no byte can land any more. Core
  // and link are there until the last callback has run: it may ask for more, and is refused.
  std::vector<std::function<void()>> run;
  std::exception_ptr thrown;
  for (uint32_t round = 0; round < kCloseRoundsMax; ++round) {
    {
      MutexLock lock(&mutex_);
      closed_ = true;
      core_->Close();
      (void)core_->Poll();
      run.swap(ready_);
      turn_.SignalAll();
      Wake();
    }
    if (run.empty()) break;
    RunAll(run, thrown);
  }
}

bool Client::Impl::Close() {
  {
    MutexLock lock(&anchor_->mutex);
    anchor_->client = nullptr;
  }
  EndCalls();
  link_->Stop();
  bool waits = false;
  const uint32_t mine = MyEntries(waits);
  const Nanos until = clock_.Now() + kCloseWaitMax;
  while (inside_.load(std::memory_order_acquire) > mine) {
    if (clock_.Now() >= until) return false;
    const timespec nap{0, kCloseLookNs};
    ::nanosleep(&nap, nullptr);
  }
  EndCalls();  // What a thread asked for on its way out.
  return true;
}

bool Client::Impl::CloseToFree() noexcept {
  if (Forked()) return false;
  try {
    bool waits = false;
    if (!Close() || (MyEntries(waits) > 0 && waits)) return false;
    // A callback that Poll runs may free the client: Poll does not look at it again.
    for (Entry* entry = t_innermost; entry != nullptr; entry = entry->outer_) {
      if (entry->impl_ == this) entry->impl_ = nullptr;
    }
    return true;
  } catch (...) {  // Without memory to close with.
    return false;
  }
}

void Client::Impl::Keep(Impl* impl) { impl->kept_before_ = g_kept.exchange(impl); }

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() {
  if (!impl_->CloseToFree()) Impl::Keep(impl_.release());
}

Status Client::Close() {
  if (impl_->Forked()) return ForkedStatus();
  if (impl_->Close()) return {};
  return {Code::kDeadlineExceeded, "a thread has been inside a callback of this client for 10 s"};
}

}  // namespace cistern
