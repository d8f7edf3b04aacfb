#include "core/part.h"

#include <array>

namespace cistern {
namespace {

struct Row {
  std::string_view name;
  absl::StatusCode code;
};
using enum absl::StatusCode;
constexpr std::array<Row, kPartResultMax + 1> kRows = {{
    {"OK", kOk},
    {"MISS", kNotFound},
    {"LAYOUT", kFailedPrecondition},
    {"STALE", kFailedPrecondition},
    {"LEASE_EXPIRED", kFailedPrecondition},
    {"CORRUPT", kDataLoss},
    {"NO_SPACE", kResourceExhausted},
    {"BUSY", kResourceExhausted},
    {"TOO_LARGE", kInvalidArgument},
    {"EXISTS", kAlreadyExists},
    {"DENIED", kPermissionDenied},
    {"DEADLINE", kDeadlineExceeded},
    {"PEER_GONE", kUnavailable},
    {"CANCELLED", kCancelled},
    {"INVALID", kInvalidArgument},
    {"WRONG_SHARD", kFailedPrecondition},
    {"BREAKER_OPEN", kUnavailable},
}};

}  // namespace

std::string_view PartResultName(PartResult result) {
  const auto i = static_cast<uint8_t>(result);
  return i <= kPartResultMax ? kRows[i].name : "UNKNOWN";
}

bool CountsAsMiss(PartResult result) { return result != PartResult::kOk && result != PartResult::kExists; }

absl::StatusCode PartResultCode(PartResult result) {
  const auto i = static_cast<uint8_t>(result);
  return i <= kPartResultMax ? kRows[i].code : kUnknown;
}

std::string ToHex(const uint8_t* data, size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes * 2);
  for (size_t i = 0; i < bytes; ++i) {
    out.push_back(kDigits[data[i] >> 4]);
    out.push_back(kDigits[data[i] & 15]);
  }
  return out;
}

}  // namespace cistern
