#include "client/cli/output.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "nlohmann/json.hpp"

namespace cistern {
namespace {

std::string OneLine(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\n' || c == '\r') {
      if (!out.empty() && !out.ends_with("; ")) out += "; ";
    } else {
      out += c;
    }
  }
  while (out.ends_with("; ")) out.resize(out.size() - 2);
  return out;
}

// errno of the first result that standard output did not take. A command prints from one thread.
int output_error = 0;

bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789.-%") == std::string::npos;
}

}  // namespace

int Fail(bool json, std::string_view message) {
  const std::string line = OneLine(message);
  std::fprintf(stderr, "cistern: %s\n", line.c_str());
  if (json) PrintResult(true, Json{{"error", line}}, "");
  return kExitError;
}

void Note(std::string_view message) { std::fprintf(stderr, "cistern: %s\n", OneLine(message).c_str()); }

void Print(std::string_view text) {
  errno = 0;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written && output_error == 0) output_error = errno != 0 ? errno : EIO;
}

void PrintResult(bool json, const Json& object, const std::string& text) {
  // Names of files and nodes may hold any byte; a replaced one beats an exception.
  Print(json ? object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n" : text);
}

int Finish(int code) {
  const int error = std::exchange(output_error, 0);
  if (error == 0) return code;
  return Fail(false, std::string("cannot write standard output: ") + strerror(error) +
                         "; the command's result is lost, point it elsewhere");
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string fill(widths[i] - row[i].size(), ' ');
      line += IsNumber(row[i]) ? fill + row[i] : row[i] + fill;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string FormatNumber(double value) {
  const double size = std::fabs(value);
  const int digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

double Rounded(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*g", digits, value);
  return std::strtod(text, nullptr);
}

}  // namespace cistern
