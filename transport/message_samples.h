#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/random.h"
#include "transport/messages.h"

namespace cistern {

// Every message of the wire with a maker of random legal ones and its decoder, for tests and fuzzers.
struct MessageKind {
  std::string name;    // As errors say it.
  std::string stored;  // As stored samples name it; "+": with what may follow.
  std::function<Bytes(Random&)> encode_random;
  // Decodes into an object that already held something, and encodes what it read.
  std::function<absl::StatusOr<Bytes>(ByteView)> decode_and_encode;
};
std::vector<MessageKind> AllMessageKinds();

}  // namespace cistern
