#include "core/calc/json_fields.h"

#include <cmath>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cistern {

JsonFields::JsonFields(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) Refuse("is no JSON object");
}

void JsonFields::Refuse(const std::string& what) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(where_, ": ", what));
}

const nlohmann::json* JsonFields::Take(const char* name, bool required) {
  taken_.insert(name);
  const auto found = object_.is_object() ? object_.find(name) : object_.end();
  if (found != object_.end()) return &*found;
  if (required) Refuse(absl::StrCat("field ", name, " is missing"));
  return nullptr;
}

double JsonFields::Number(const char* name, double min, double max) {
  Take(name, true);
  return NumberOr(name, min, max, min);
}

double JsonFields::NumberOr(const char* name, double min, double max, double otherwise) {
  const nlohmann::json* const value = Take(name, false);
  if (value == nullptr) return otherwise;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= min && number <= max)) {
    Refuse(absl::StrCat("field ", name, " is no number from ", min, " to ", max));
    return otherwise;
  }
  return number;
}

uint64_t JsonFields::Count(const char* name, uint64_t min, uint64_t max) {
  Take(name, true);
  return CountOr(name, min, max, min);
}

uint64_t JsonFields::CountOr(const char* name, uint64_t min, uint64_t max, uint64_t otherwise) {
  const nlohmann::json* const value = Take(name, false);
  if (value == nullptr) return otherwise;
  if (!value->is_number_unsigned() || value->get<uint64_t>() < min || value->get<uint64_t>() > max) {
    Refuse(absl::StrCat("field ", name, " is no whole number from ", min, " to ", max));
    return otherwise;
  }
  return value->get<uint64_t>();
}

std::string JsonFields::Text(const char* name) {
  Take(name, true);
  return TextOr(name, "");
}

std::string JsonFields::TextOr(const char* name, std::string otherwise) {
  const nlohmann::json* const value = Take(name, false);
  if (value == nullptr) return otherwise;
  if (!value->is_string() || value->get_ref<const std::string&>().empty() ||
      value->get_ref<const std::string&>().size() > kDataTextBytesMax) {
    Refuse(absl::StrCat("field ", name, " is no text of 1 to ", kDataTextBytesMax, " bytes"));
    return otherwise;
  }
  return value->get<std::string>();
}

std::vector<std::string> JsonFields::Texts(const char* name) {
  std::vector<std::string> texts;
  const nlohmann::json* const value = Take(name, false);
  if (value == nullptr) return texts;
  if (!value->is_array() || value->size() > kDataEntriesMax) {
    Refuse(absl::StrCat("field ", name, " is no list of texts"));
    return texts;
  }
  for (const nlohmann::json& one : *value) {
    if (!one.is_string()) {
      Refuse(absl::StrCat("field ", name, " is no list of texts"));
    } else {
      texts.push_back(one.get<std::string>());
    }
  }
  return texts;
}

const nlohmann::json* JsonFields::Value(const char* name) { return Take(name, false); }

absl::Status JsonFields::Finish() {
  if (!status_.ok()) return status_;
  for (const auto& [name, value] : object_.items()) {
    if (!taken_.contains(name)) Refuse(absl::StrCat("there is no field ", name.substr(0, 40)));
  }
  return status_;
}

absl::StatusOr<nlohmann::json> ParseDataList(std::string_view text, const char* name,
                                             const std::string& where) {
  if (text.size() > kDataFileBytesMax)
    return absl::InvalidArgumentError(absl::StrCat(where, ": over ", kDataFileBytesMax, " bytes"));
  const nlohmann::json file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(where, ": is not JSON"));
  JsonFields fields(file, where);
  fields.TextOr("about", "");
  fields.TextOr("date", "");
  const nlohmann::json* const list = fields.Value(name);
  if (list == nullptr || !list->is_array() || list->size() > kDataEntriesMax)
    fields.Refuse(absl::StrCat("field ", name, " is no list of at most ", kDataEntriesMax, " objects"));
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  return *list;
}

absl::StatusOr<std::string> ReadDataFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open())
    return absl::NotFoundError(absl::StrCat("cannot open ", path, "; docs/economics.md has its format"));
  std::string text(kDataFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof()))
    return absl::UnavailableError(absl::StrCat("cannot read ", path));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kDataFileBytesMax)
    return absl::InvalidArgumentError(absl::StrCat(path, ": over ", kDataFileBytesMax, " bytes"));
  return text;
}

std::string JoinNames(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) absl::StrAppend(&out, out.empty() ? "" : ", ", name);
  return out;
}

}  // namespace cistern
