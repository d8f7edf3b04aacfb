#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "transport/transport.h"

namespace cistern {

inline uint64_t PayloadBytes(const OutFrame& frame) {
  uint64_t bytes = 0;
  for (const ConstSegment& segment : frame.payload) bytes += segment.bytes;
  return bytes;
}

// What Send of every transport refuses, by InvalidArgument: a body or payload above what one frame may have.
inline absl::Status CheckFrameBytes(const OutFrame& frame) {
  const uint64_t payload_bytes = PayloadBytes(frame);
  if (frame.body.size() <= kBodyBytesMax && payload_bytes <= kPayloadBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("frame of ", frame.body.size(), " body and ", payload_bytes,
                                                 " payload bytes, at most ", kBodyBytesMax, " and ",
                                                 kPayloadBytesMax));
}

}  // namespace cistern
