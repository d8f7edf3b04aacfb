// Tickets as a stranger may send them: nothing but what SealTicket made may open.
#include <string>

#include "core/ticket.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/sim/fixed_key.h"

namespace cistern {
namespace {

constexpr int64_t kNow = 1'700'000'000;

// Fixed, so that corpora stay valid.
const ClusterKey& Key() {
  static const ClusterKey key = FixedClusterKey();
  return key;
}

Ticket Sample(uint64_t nonce) {
  Ticket ticket;
  ticket.rights = kRightRead | kRightWrite;
  ticket.expires_unix_s = kNow + 3600;
  ticket.nonce = nonce;
  return ticket;
}

}  // namespace

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  add("default", SealTicket(Sample(1), Key()));
  Ticket named = Sample(2);
  named.tenant = std::string(64, 'x');
  named.name_space = "shared";
  add("named", SealTicket(named, Key()));
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  const std::string_view sealed(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<Ticket> ticket = OpenTicket(sealed, Key(), ClusterId{}, kNow);
  // Without the key nobody can make another valid one, so whatever opens must seal to the same bytes.
  if (ticket.ok()) FUZZ_REQUIRE(SealTicket(*ticket, Key()) == sealed);
  return 0;
}
