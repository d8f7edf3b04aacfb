#include "tests/sim/sim_log.h"

#include <xxhash.h>

#include <cstdio>

namespace cistern {

void SimLog::Event(std::string_view what, std::string_view who, uint64_t a, uint64_t b,
                   std::string_view detail) {
  const uint64_t numbers[4] = {static_cast<uint64_t>(clock_.Now()), a, b, what.size() << 32 | who.size()};
  digest_ = XXH3_64bits_withSeed(numbers, sizeof numbers, digest_);
  digest_ = XXH3_64bits_withSeed(what.data(), what.size(), digest_);
  digest_ = XXH3_64bits_withSeed(who.data(), who.size(), digest_);
  digest_ = XXH3_64bits_withSeed(detail.data(), detail.size(), digest_);
  ++events_;
  if (!print_) return;
  char line[256];
  std::snprintf(line, sizeof line, "%13.6f %-14.*s %-10.*s %llu %llu %.*s",
                static_cast<double>(clock_.Now()) / 1e9, static_cast<int>(who.size()), who.data(),
                static_cast<int>(what.size()), what.data(), static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b), static_cast<int>(detail.size()), detail.data());
  print_(line);
}

void SimLog::Fail(const std::string& why) {
  Event("FAIL", "oracle", 0, 0, why);
  if (failure_.empty()) failure_ = why;
}

}  // namespace cistern
