#pragma once

#include <cstdint>

#include "core/clock.h"
#include "core/part.h"
#include "transport/messages.h"
#include "transport/transport.h"

// The one place that decides whether bytes that arrived may be called OK (DESIGN §1, promise 1). Every path
// (pull, reply with payload, read of a plan) goes through it, part by part, after the transfer.
namespace cistern {

struct ExpectedPart {
  BlockKey block;
  PartCoord coord;
  uint32_t length = 0;
};

// Does the node's description name what was asked? Also the node's own verdict when that is not kOk.
// Key or coordinate differ: kCorrupt. Length differs: kLayout. A generation that is odd: kStale.
PartResult VerifyDescriptor(const ExpectedPart& expected, const PartDescriptor& descriptor);

// After a one-sided read: crc and trailer as they were read, and the lease, which must not have ended at
// `now`.
PartResult VerifyPulled(const ExpectedPart& expected, const PartDescriptor& descriptor,
                        const PullResult& pulled, Nanos now, Nanos lease_end);

// After a reply with payload: the CRC of the bytes as they landed. The node holds the slot while it sends, so
// no lease is involved; bytes that changed underneath have another CRC.
PartResult VerifyInline(const ExpectedPart& expected, const PartDescriptor& descriptor, uint32_t piece_crc);

// The result of a page is its worst part's. Larger is worse; kOk is best.
int Badness(PartResult result);
inline PartResult WorseOf(PartResult a, PartResult b) { return Badness(b) > Badness(a) ? b : a; }

}  // namespace cistern
