#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cistern {

inline constexpr size_t kAddressBytesMax = 256;

// "HOST:PORT" as flags, maps and other processes give it; the one place that reads it.
struct HostPort {
  std::string host;  // A name or a numeric address, IPv6 without its brackets.
  uint16_t port = 0;
  // As a text takes it: IPv6 in brackets.
  std::string HostText() const;
  std::string ToString() const;
};

enum class PortZero : uint8_t {
  kRefused,
  kAnyFree,  // For whoever listens: the system chooses.
};

// InvalidArgument quotes the text, says what is wrong with it, and shows a right one: callers put the name of
// the flag or field before it.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text, PortZero zero = PortZero::kRefused);

// Whether strangers on other hosts cannot reach this host part. Of names only "localhost" is known.
bool IsLoopbackHost(std::string_view host);
// Every address of this host, so none that others could be told.
bool IsWildcardHost(std::string_view host);

}  // namespace cistern
