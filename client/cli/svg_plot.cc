#include "client/cli/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace cistern {
namespace {

constexpr double kWidth = 860, kHeight = 480, kLeft = 60, kRight = 190, kTop = 40, kBottom = 50;
// Told apart also by people who see few colours, with the dashes.
constexpr const char* kColours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9",
                                    "#d55e00", "#999999", "#000000", "#f0c000"};
constexpr const char* kDashes[] = {"none", "6 3", "2 3"};

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

std::string Escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out;
}

std::string Text(double x, double y, const std::string& text, const char* anchor = "start") {
  return "<text x=\"" + Number(x) + "\" y=\"" + Number(y) + "\" text-anchor=\"" + anchor + "\">" +
         Escape(text) + "</text>\n";
}

std::string Line(double x1, double y1, double x2, double y2, const std::string& stroke) {
  return "<line x1=\"" + Number(x1) + "\" y1=\"" + Number(y1) + "\" x2=\"" + Number(x2) + "\" y2=\"" +
         Number(y2) + "\" stroke=\"" + stroke + "\"/>\n";
}

struct Axes {
  double x_min = 1, x_max = 0, y_max = 0;
  explicit Axes(const std::vector<PlotSeries>& series) {
    for (const PlotSeries& one : series) {
      for (const auto& [x, y] : one.points) {
        x_min = std::min(x_min, x);
        x_max = std::max(x_max, x);
        y_max = std::max(y_max, y);
      }
    }
    x_max = std::max(x_max, x_min * 1.0001);
    y_max = std::max(.1, std::ceil(y_max * 10) / 10);
  }
  double X(double x) const {
    return kLeft + (kWidth - kLeft - kRight) * std::log(x / x_min) / std::log(x_max / x_min);
  }
  double Y(double y) const { return kHeight - kBottom - (kHeight - kTop - kBottom) * y / y_max; }
};

std::string DrawSeries(const PlotSeries& one, const Axes& axes, const std::string& look) {
  std::string out = "<polyline fill=\"none\" stroke-width=\"2\" " + look + " points=\"";
  for (const auto& [x, y] : one.points) out += Number(axes.X(x)) + "," + Number(axes.Y(y)) + " ";
  return out + "\"/>\n";
}

}  // namespace

std::string DrawShares(const std::string& title, const std::string& x_name, const std::string& y_name,
                       const std::vector<PlotSeries>& series) {
  const Axes axes(series);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + Number(kWidth) + " " +
                    Number(kHeight) + "\" font-family=\"sans-serif\" font-size=\"12\">\n" +
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  out += Text(kLeft, kTop - 18, title);
  for (int tick = 0; tick * .1 <= axes.y_max + 1e-9; ++tick) {
    out += Line(kLeft, axes.Y(tick * .1), kWidth - kRight, axes.Y(tick * .1), "#dddddd");
    out += Text(kLeft - 6, axes.Y(tick * .1) + 4, Number(tick * .1), "end");
  }
  std::vector<double> sizes;
  for (const PlotSeries& one : series) {
    for (const auto& point : one.points) sizes.push_back(point.first);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (const double x : sizes) {
    out += Line(axes.X(x), kTop, axes.X(x), kHeight - kBottom, "#dddddd");
    out += Text(axes.X(x), kHeight - kBottom + 16, Number(100 * x) + "%", "middle");
  }
  out += Text((kLeft + kWidth - kRight) / 2, kHeight - 12, x_name, "middle");
  out += Text(8, kTop - 18, y_name);
  for (size_t i = 0; i < series.size(); ++i) {
    const std::string look = std::string("stroke=\"") + kColours[i % std::size(kColours)] +
                             "\" stroke-dasharray=\"" + kDashes[i % std::size(kDashes)] + "\"";
    out += DrawSeries(series[i], axes, look);
    const double y = kTop + 18 * static_cast<double>(i);
    out += "<path d=\"M" + Number(kWidth - kRight + 12) + " " + Number(y) + "h30\" stroke-width=\"2\" " +
           look + "/>\n";
    out += Text(kWidth - kRight + 48, y + 4, series[i].name);
  }
  return out + "</svg>\n";
}

}  // namespace cistern
