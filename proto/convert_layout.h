#pragma once

#include "absl/status/statusor.h"
#include "core/layout/layout.h"
#include "proto/layout.pb.h"

// Layouts to and from plain values; everything from the wire or a file is validated here.
namespace cistern {

// InvalidArgument naming the field: an encoding version this build does not know, an enum's value without a
// name, and all that layout::Validate refuses. Numbers left out mean what layout.proto says beside them.
absl::StatusOr<layout::Layout> FromWire(const proto::Layout& wire);
// Of a valid layout. What a reader takes for left out is left out, so texts stay short.
proto::Layout ToWire(const layout::Layout& layout);

}  // namespace cistern
