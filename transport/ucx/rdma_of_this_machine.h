#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <filesystem>
#include <string>
#include <vector>

namespace cistern {

// Which UCX transports a test runs on, and the address to listen on.
struct FabricUnderTest {
  std::string name;
  std::string transports;
  std::string host = "127.0.0.1";
  bool gets = false;      // Reads are gets: one-sided over RDMA, emulated by the owner elsewhere.
  bool emulated = false;  // See FabricOptions::emulated_gets.
};

// An IPv4 address of this machine beside loopback: where an RDMA device answers. Empty: there is no RDMA
// device.
inline std::string RdmaHost() {
  std::error_code error;
  const std::filesystem::path devices = "/sys/class/infiniband";
  if (!std::filesystem::is_directory(devices, error) || std::filesystem::is_empty(devices, error)) return {};
  std::string host;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  for (const ifaddrs* at = all; at != nullptr && host.empty(); at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text, sizeof(text));
    host = text;
  }
  freeifaddrs(all);
  return host;
}

// Reliable connections of verbs, where the machine has any (tests/softroce makes one that has).
inline bool AddRc(std::vector<FabricUnderTest>& kinds) {
  const std::string host = RdmaHost();
  if (host.empty()) return false;
  kinds.push_back({"rc", "rc_v,ud_v", host, true, false});
  return true;
}

}  // namespace cistern
