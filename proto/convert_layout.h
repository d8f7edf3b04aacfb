#pragma once

#include "absl/status/statusor.h"
#include "core/layout_spec.h"
#include "proto/layout.pb.h"

// Layouts to and from plain values; everything from the wire is validated here.
namespace cistern {

// InvalidArgument naming the field: an encoding version this build does not know, any number of groups but
// one, another family than HISTORY, and all that ValidateLayout refuses.
absl::StatusOr<LayoutSpec> FromWire(const proto::Layout& wire);
proto::Layout ToWire(const LayoutSpec& layout);

}  // namespace cistern
