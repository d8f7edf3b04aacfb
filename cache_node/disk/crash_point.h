#pragma once

#include <cstdint>

namespace cistern {

// Places of the write path at which a test ends the process as kill -9 would (F33). The numbers are the
// flag's: never renumber, only append.
enum class CrashPoint : uint8_t {
  kRecordStaged = 1,       // A record lies in the write ring, nothing of it on disk.
  kBatchSubmitted = 2,     // A batch of records was handed to the disk.
  kBatchWritten = 3,       // It was written, and not synced.
  kBatchDurable = 4,       // It was synced, and nobody was told.
  kFooterSubmitted = 5,    // An extent is full; its footer is on its way.
  kExtentSealed = 6,       // The footer is durable, the manifest does not know.
  kManifestQueued = 7,     // A change of the manifest waits for its group.
  kManifestCommitted = 8,  // The group is durable.
  kReclaimBegun = 9,       // The victim's unwanted parts have left the index.
  kReclaimCopied = 10,     // Its wanted parts are durable elsewhere.
  kExtentFreed = 11,       // Its header says free, the table does not.
  kRecoverySealed = 12,    // A start has cut a torn tail and written the footer.
};
inline constexpr uint8_t kCrashPointMax = 12;

// Arms one point of this process: abort() when it is passed for the `pass`-th time. For tests; a node takes
// it from the hidden flag --crash-at. Thread: before any other thread starts.
void ArmCrashPoint(uint8_t point, uint64_t pass);

namespace internal {
extern uint8_t g_crash_point;  // 0: none.
void PassCrashPoint();
}  // namespace internal

inline void CrashHere(CrashPoint point) {
  if (internal::g_crash_point == static_cast<uint8_t>(point)) [[unlikely]]
    internal::PassCrashPoint();
}

}  // namespace cistern
