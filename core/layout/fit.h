#pragma once

#include "core/layout/layout.h"

// Numbers of a layout that follow from its sizes, for layouts that are made and not written by hand.
namespace cistern::layout {

// Cuts a tail group into as few spans of consecutive layers as keep each part at kPartBytesMax or less, as
// equal as they can be. A layer that is larger alone gets a span of its own.
void FitSpans(const Layout& layout, Group& group);

// The fewest layers a stripe so that each has 128 KiB or more in the first history group and no part more
// than kStripesMax; 0 when no number does.
uint32_t FitStripeLayers(const Layout& layout);

// The most tokens (a power of two, a multiple of `step`, at most `tokens_max`) whose history parts are at
// most kPartBytesMax; `step` when none is.
uint32_t FitBlockTokens(const Layout& layout, uint32_t step, uint32_t tokens_max);

// The largest divisor of `heads` up to 8: slices for TP 1 to 8.
uint16_t FitSlices(uint32_t heads);

}  // namespace cistern::layout
