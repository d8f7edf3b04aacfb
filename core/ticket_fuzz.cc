#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/check.h"
#include "core/ticket.h"

// Whatever comes as a ticket is opened or refused; nothing else. The first input byte chooses whether the
// rest is taken as it is (what a stranger can send) or signed first (so that the fields behind the signature
// are reached too).
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using cistern::ClusterId;
  using cistern::ClusterKey;
  static const ClusterKey key = ClusterKey::Generate();
  constexpr int64_t kNow = 1'800'000'000;
  if (bytes == 0) return 0;
  std::string sealed(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  const bool sign = (data[0] & 1) != 0;
  if (sign) {
    const std::array<uint8_t, 32> mac = key.Derive("cistern/ticket/1", sealed);
    sealed.append(reinterpret_cast<const char*>(mac.data()), mac.size());
  }
  // The cluster is the one the ticket names, so that only expiry and form can refuse it.
  ClusterId cluster;
  if (sealed.size() >= 17)
    sealed.copy(reinterpret_cast<char*>(cluster.bytes.data()), cluster.bytes.size(), 1);
  const absl::StatusOr<cistern::Ticket> ticket = cistern::OpenTicket(sealed, key, cluster, kNow);
  if (!ticket.ok()) return 0;
  CISTERN_CHECK(sign);  // Nobody guesses a signature.
  // What was taken has one form only.
  CISTERN_CHECK(cistern::SealTicket(*ticket, key) == sealed);
  return 0;
}
