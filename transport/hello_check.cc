#include "transport/hello_check.h"

#include "absl/strings/str_cat.h"
#include "core/chain.h"

namespace cistern {

absl::Status CheckHello(const FrameHeader& header, ByteView body, Hello& hello, HelloCounters& counters) {
  const bool foreign = header.version < kWireVersionMin || header.version > kWireVersionMax;
  // A HELLO of a version unknown here may have more fields; its first ones tell why it is refused.
  absl::Status status = hello.DecodeVersions(body);
  if (!status.ok()) {
    ++counters.bad_frames;
    return status;
  }
  if (foreign || hello.version_min > kWireVersionMax || hello.version_max < kWireVersionMin) {
    ++counters.version_refused;
    return absl::FailedPreconditionError(absl::StrCat("wire versions ", hello.version_min, " to ",
                                                      hello.version_max, " offered, ", kWireVersionMin,
                                                      " to ", kWireVersionMax, " spoken here"));
  }
  if (hello.key_algorithm != kKeyAlgorithm) {
    ++counters.algorithm_refused;
    return absl::FailedPreconditionError(absl::StrCat("key algorithm \"", hello.key_algorithm,
                                                      "\" offered, \"", kKeyAlgorithm, "\" used here"));
  }
  status = hello.Decode(body);
  if (!status.ok()) ++counters.bad_frames;
  return status;
}

}  // namespace cistern
