#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/layout/layout.h"

namespace cistern::layout {

// One pass of Validate over one layout; stops at the first field that cannot be. Borrows the layout for its
// own life.
class LayoutCheck {
 public:
  explicit LayoutCheck(const Layout& layout) : layout_(layout) {}
  absl::Status Run();

 private:
  absl::Status CheckTop();
  absl::Status CheckGroup(size_t g);
  absl::Status CheckFamily(const std::string& path, const Group& group);
  absl::Status CheckSpans(const std::string& path, const Group& group);
  absl::Status CheckSegment(const std::string& path, const Group& group, const Segment& segment);
  absl::Status CheckCadence(const std::string& path, const Group& group, const Segment& segment);
  absl::Status CheckPlane(const std::string& path, const Plane& plane);
  absl::Status CheckScale(const std::string& path, const Plane& plane);
  // What depends on the planes before it, the segment and the group.
  absl::Status CheckPlaneAmong(const std::string& path, const Group& group, const Segment& segment, size_t p);
  absl::Status CheckOverlap(const std::string& path, const Group& group, const Segment& segment);
  absl::Status CheckMissingLayers();
  absl::Status CheckPartBytes(size_t g);
  absl::Status CheckStripes(size_t g);
  absl::Status CheckPartCount();

  const Layout& layout_;
  std::set<uint32_t> layers_;  // Seen in any group.
  // (family, layer, plane name) to the path that had it first.
  std::map<std::pair<uint32_t, std::pair<uint32_t, std::string>>, std::string> seen_;
  std::set<std::string> group_names_;
};

}  // namespace cistern::layout
