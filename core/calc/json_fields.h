#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace cistern {

inline constexpr size_t kDataFileBytesMax = size_t{1} << 20;
inline constexpr size_t kDataEntriesMax = 1024;  // Models or providers of one file.
inline constexpr size_t kDataTextBytesMax = 2048;

// Takes the fields of one JSON object of a data file, each once, with its range; what is wrong is named with
// the object and the field, and the first such error is kept. A field nobody asked for is an error too: a
// misspelt price must not be a default. Borrows the object.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string where);

  double Number(const char* name, double min, double max);
  double NumberOr(const char* name, double min, double max, double otherwise);
  uint64_t Count(const char* name, uint64_t min, uint64_t max);
  uint64_t CountOr(const char* name, uint64_t min, uint64_t max, uint64_t otherwise);
  std::string Text(const char* name);
  std::string TextOr(const char* name, std::string otherwise);
  std::vector<std::string> Texts(const char* name);  // Empty when absent.
  // The value itself, for what lies deeper; null when absent.
  const nlohmann::json* Value(const char* name);

  void Refuse(const std::string& what);
  const std::string& where() const { return where_; }
  // The first error, a field that nobody took included.
  absl::Status Finish();

 private:
  const nlohmann::json* Take(const char* name, bool required);

  const nlohmann::json& object_;
  const std::string where_;
  std::set<std::string> taken_;
  absl::Status status_;
};

// The list `name` of a data file's text: {"about": …, "date": …, name: [ … ]}. InvalidArgument with `where`
// and what is wrong.
absl::StatusOr<nlohmann::json> ParseDataList(std::string_view text, const char* name,
                                             const std::string& where);
// A whole file of at most kDataFileBytesMax; the error names the path.
absl::StatusOr<std::string> ReadDataFile(const std::string& path);

// "a, b, c": what a message lists.
std::string JoinNames(const std::vector<std::string>& names);

// Where `name` stands among entries with a name and aliases; -1 when nowhere.
template <typename Entry>
int IndexOf(const std::vector<Entry>& entries, std::string_view name) {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].name == name) return static_cast<int>(i);
    for (const std::string& alias : entries[i].aliases) {
      if (alias == name) return static_cast<int>(i);
    }
  }
  return -1;
}

// Entries of `more` take the place of those of the same name and are added otherwise.
template <typename Entry>
void MergeEntries(std::vector<Entry>& entries, std::vector<Entry> more) {
  for (Entry& entry : more) {
    const int at = IndexOf(entries, entry.name);
    if (at >= 0) {
      entries[static_cast<size_t>(at)] = std::move(entry);
    } else {
      entries.push_back(std::move(entry));
    }
  }
}

}  // namespace cistern
