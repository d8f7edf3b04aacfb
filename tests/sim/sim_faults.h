#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cistern {

// Kinds of things that go wrong in a run, as bits of SimOptions::faults, so that a failing run can be made
// smaller by leaving kinds out.
enum SimFault : uint32_t {
  kFaultLink = 1u << 0,    // Delays, spikes, flipped bits and resets on a link.
  kFaultCut = 1u << 1,     // Partitions, one way or both.
  kFaultNode = 1u << 2,    // Nodes that stop, die, or are not scheduled for a while.
  kFaultRouter = 1u << 3,  // The router restarts.
  kFaultClient = 1u << 4,  // Engines die.
  kFaultFlip = 1u << 5,    // Bits flip in a node's memory.
  kFaultDrop = 1u << 6,    // An operator drops all parts of a node.
  kFaultReset = 1u << 7,   // Connections break.
  kFaultRpc = 1u << 8,     // Control calls get lost or come twice.
  kFaultTwice = 1u << 9,   // Frames come twice, the second time late.
  kFaultDisk = 1u << 10,   // Devices are slow, fail, are full, tear writes in a power cut, and flip bits.
  kFaultClock = 1u << 11,  // Wall clocks of nodes jump, and a client's clock goes far too slowly.
};
inline constexpr uint32_t kFaultKinds = 12;
inline constexpr uint32_t kAllFaults = (1u << kFaultKinds) - 1;

// "link,cut,...", "all" or "none".
std::string FaultNames(uint32_t faults);
// Nothing when a name is none of ours.
std::optional<uint32_t> ParseFaults(std::string_view names);

}  // namespace cistern
