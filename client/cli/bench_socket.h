#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/bench_run.h"
#include "client/cli/samples.h"

namespace cistern {

// What a plain socket moves in the shape of a read: a child process answers each request with `batch` random
// parts of a 1 GiB arena, this process receives them into memory that has left the caches. Nothing is found
// or checked. Stays at hand for the whole bench, so that its slices can alternate with measured ones; half of
// each slice blocks and half spins, and the limit is whichever median is the faster. Owner: a bench; one
// thread. The child ends with it.
class SocketLimit {
 public:
  // over_unix: a unix stream, else loopback TCP. The destinations outlive it.
  static absl::StatusOr<std::unique_ptr<SocketLimit>> Create(size_t size, size_t batch, bool over_unix,
                                                             std::byte* to, size_t to_bytes);
  ~SocketLimit();
  SocketLimit(const SocketLimit&) = delete;
  SocketLimit& operator=(const SocketLimit&) = delete;

  BenchLimit limit() {
    return {name(), [this](double seconds) { return Slice(seconds); }};
  }
  // After the slices: "raw tcp socket, spinning" and its rate.
  std::string name();
  double gbps();

 private:
  SocketLimit(int fd, pid_t child, size_t size, size_t batch, bool over_unix, std::byte* to, size_t to_bytes);
  double Slice(double seconds);
  double Half(double seconds, bool spin);

  const int fd_;
  const pid_t child_;
  const size_t size_, batch_;
  const bool over_unix_;
  std::byte* const to_;
  const size_t to_bytes_;
  size_t at_ = 0;
  Samples blocking_, spinning_;
};

}  // namespace cistern
