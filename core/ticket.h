#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/ids.h"

namespace cistern {

// The cluster's secret. A file of mode 0600 in `cistern up`'s folder: 64 hex digits and a newline.
class ClusterKey {
 public:
  ClusterKey() = default;  // No key yet: Derive and Save refuse to work (a bug of ours).
  ~ClusterKey();           // Wipes its copy.
  ClusterKey(const ClusterKey&) = default;
  ClusterKey& operator=(const ClusterKey&) = default;

  static ClusterKey Generate();
  // FailedPrecondition naming the file and the fix when it is missing, short, or readable by others.
  static absl::StatusOr<ClusterKey> Load(const std::string& path);
  absl::Status Save(const std::string& path) const;  // O_EXCL, 0600; AlreadyExists when there.
  // HMAC-SHA-256 under this key of (label, data): subkeys and namespace secrets.
  std::array<uint8_t, 32> Derive(std::string_view label, std::string_view data) const;

 private:
  bool IsSet() const;
  std::array<uint8_t, 32> key_{};
};

enum TicketRight : uint32_t { kRightRead = 1, kRightWrite = 2, kRightAdmin = 4 };

// What a client may do, signed by the router under the cluster key; nodes check it without asking anyone.
struct Ticket {
  ClusterId cluster;
  std::string tenant = "default";
  std::string name_space = "default";
  uint32_t rights = 0;         // TicketRight bits.
  int64_t expires_unix_s = 0;  // Wall clock, with kTicketSkew allowed; lives are hours.
  uint64_t nonce = 0;
};
inline constexpr size_t kTicketBytesMax = 512;
inline constexpr size_t kTicketNameBytesMax = 128;  // Of tenant and of namespace.
inline constexpr int64_t kTicketSkewSeconds = 300;

// Encoding || 32-byte HMAC. Empty when a name is above kTicketNameBytesMax: whoever takes names from a wire
// checks first.
std::string SealTicket(const Ticket& ticket, const ClusterKey& key);
// PermissionDenied (bad MAC, other cluster, expired), InvalidArgument (malformed). Constant-time MAC compare.
absl::StatusOr<Ticket> OpenTicket(std::string_view sealed, const ClusterKey& key, const ClusterId& cluster,
                                  int64_t now_unix_s);

}  // namespace cistern
