#include "core/calc/bar_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace cistern::calc {
namespace {

double Largest(const std::vector<Bar>& bars) {
  double largest = 0;
  for (const Bar& bar : bars) largest = std::max(largest, bar.value);
  return largest;
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters cannot stand in XML at all.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

}  // namespace

std::string TextChart(const std::vector<Bar>& bars, size_t width) {
  const double largest = Largest(bars);
  size_t label_width = 0;
  for (const Bar& bar : bars) label_width = std::max(label_width, bar.label.size());
  std::string out;
  const size_t shown = std::min(bars.size(), kBarsMax);
  for (size_t i = 0; i < shown; ++i) {
    const Bar& bar = bars[i];
    size_t length =
        largest > 0 ? static_cast<size_t>(std::lround(bar.value / largest * static_cast<double>(width))) : 0;
    if (length == 0 && bar.value > 0) length = 1;
    out += bar.label + std::string(label_width - bar.label.size(), ' ') + " |";
    out += std::string(length, bar.emphasis ? '#' : '=') + (bar.note.empty() ? "" : " " + bar.note) + "\n";
  }
  if (shown < bars.size())
    out += std::string("(").append(std::to_string(bars.size() - shown)).append(" more left out)\n");
  return out;
}

std::string SvgChart(std::string_view title, const std::vector<Bar>& bars) {
  constexpr double kLeft = 260, kWidth = 480, kRight = 200, kTop = 48, kStep = 30, kBar = 20;
  const double largest = Largest(bars);
  const size_t shown = std::min(bars.size(), kBarsMax);
  const double height = kTop + kStep * static_cast<double>(shown) + 16;
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + Number(kLeft + kWidth + kRight) +
                    "\" height=\"" + Number(height) +
                    "\" font-family=\"sans-serif\" font-size=\"13\">\n"
                    "  <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
                    "  <text x=\"16\" y=\"28\" font-size=\"16\">" +
                    Escaped(title) + "</text>\n";
  for (size_t i = 0; i < shown; ++i) {
    const Bar& bar = bars[i];
    const double y = kTop + kStep * static_cast<double>(i);
    const double length = largest > 0 ? std::max(bar.value / largest * kWidth, bar.value > 0 ? 1.0 : 0.0) : 0;
    out += "  <text x=\"" + Number(kLeft - 8) + "\" y=\"" + Number(y + 15) + "\" text-anchor=\"end\">" +
           Escaped(bar.label) + "</text>\n";
    out += "  <rect x=\"" + Number(kLeft) + "\" y=\"" + Number(y) + "\" width=\"" + Number(length) +
           "\" height=\"" + Number(kBar) + "\" fill=\"" + (bar.emphasis ? "#1f6f8b" : "#b8c4cc") + "\"/>\n";
    out += "  <text x=\"" + Number(kLeft + length + 8) + "\" y=\"" + Number(y + 15) + "\">" +
           Escaped(bar.note) + "</text>\n";
  }
  return out + "</svg>\n";
}

}  // namespace cistern::calc
