#include "core/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cistern {
namespace {

absl::Status Malformed(std::string_view text, const char* why) {
  const std::string shown(text.substr(0, kAddressBytesMax));
  return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(shown),
                                                 "\" is not HOST:PORT with a port of 1 to 65535: ", why,
                                                 "; write for example 127.0.0.1:7400"));
}

bool IsHost(std::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return c > ' ' && c < 127 && std::string_view("[]/@\"'\\").find(c) == std::string_view::npos;
  });
}

std::optional<uint16_t> PortOf(std::string_view digits) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return port;
}

}  // namespace

std::string HostPort::HostText() const {
  return host.find(':') == std::string::npos ? host : absl::StrCat("[", host, "]");
}
std::string HostPort::ToString() const { return absl::StrCat(HostText(), ":", port); }

absl::StatusOr<HostPort> ParseHostPort(std::string_view text, PortZero zero) {
  if (text.size() > kAddressBytesMax) return Malformed(text, "it is too long");
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Malformed(text, "it has no port");
  std::string_view host = text.substr(0, colon);
  const bool v6 = host.find(':') != std::string_view::npos;
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (v6 != brackets) return Malformed(text, "brackets belong around an IPv6 address, and around no other");
  if (brackets) host = host.substr(1, host.size() - 2);
  if (!IsHost(host)) return Malformed(text, "its host is empty, or no name and no address");
  const std::optional<uint16_t> port = PortOf(text.substr(colon + 1));
  if (!port.has_value()) return Malformed(text, "its port is no such number");
  if (*port == 0 && zero == PortZero::kRefused) return Malformed(text, "port 0 names no port");
  return HostPort{std::string(host), *port};
}

bool IsLoopbackHost(std::string_view host) {
  if (host == "localhost") return true;
  const std::string text(host);
  in_addr v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  in6_addr v6{};
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool IsWildcardHost(std::string_view host) {
  const std::string text(host);
  in_addr v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return v4.s_addr == INADDR_ANY;
  in6_addr v6{};
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

}  // namespace cistern
