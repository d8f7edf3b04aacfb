#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cistern::calc {

inline constexpr size_t kBarsMax = 64;  // More are left out, and the chart says so.

struct Bar {
  std::string label{};
  double value = 0;       // At least 0.
  std::string note{};     // What stands behind the bar: "4.914 GiB".
  bool emphasis = false;  // The one that the chart is about.
};

// Bars as lines of text, the longest `width` characters; a value that is not 0 has at least a mark.
std::string TextChart(const std::vector<Bar>& bars, size_t width);
// The same as an SVG document of its own. Text is escaped, so labels may hold any character.
std::string SvgChart(std::string_view title, const std::vector<Bar>& bars);

}  // namespace cistern::calc
