#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace cistern {

inline constexpr int kExitDone = 0;
inline constexpr int kExitShort = 1;          // Ran, and falls short of what it must show.
inline constexpr int kExitError = 2;          // The user's or the connection's fault.
inline constexpr int kExitInterrupted = 130;  // Ctrl-C; what was done until then is told.

using Json = nlohmann::ordered_json;

// One line on stderr that names cause and next step; with `json` also {"error": ...} on standard output. Line
// breaks in `message` become "; ". Returns kExitError.
int Fail(bool json, std::string_view message);
// A remark on stderr that is no error.
void Note(std::string_view message);

// To standard output, at once; Finish tells of what it did not take.
void Print(std::string_view text);
// Prints `object` with --json, else `text`.
void PrintResult(bool json, const Json& object, const std::string& text);
// The process's exit code: `code`, or kExitError and one line when standard output did not take all that was
// printed.
int Finish(int code);

// Rows as columns: the first row is the head; columns are as wide as they must be, numbers to the right.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);
// "%.*f" with few digits: 0.366 -> "0.366", 12.3 -> "12.3", 1234.5 -> "1234".
std::string FormatNumber(double value);
// value rounded to `digits` significant digits, so that JSON stays readable.
double Rounded(double value, int digits = 6);

}  // namespace cistern
