#pragma once

#include <string>

#include "core/ids.h"
#include "core/layout/layout.h"

namespace cistern::layout {

// The canonical encoding: every field that decides bytes or hits, each with tag and length, in fixed order
// and width. Left out are the names people use (model, rows, served) and `working`. Two layouts with equal
// encodings store equal bytes; a field moved to its neighbour changes it.
std::string Encode(const Layout& layout);
// SHA-256 of it, cut to 16 bytes.
LayoutId ComputeId(const Layout& layout);

}  // namespace cistern::layout
