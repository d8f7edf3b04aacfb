#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cistern {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x > 0, rising; y in [0, 1].
};

// A self-contained SVG: lines over a logarithmic x axis of shares and a y axis from 0, with a legend.
std::string DrawShares(const std::string& title, const std::string& x_name, const std::string& y_name,
                       const std::vector<PlotSeries>& series);

}  // namespace cistern
