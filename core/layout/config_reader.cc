#include "core/layout/config_reader.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace cistern::layout {
namespace {

// A field with one of these in its name may change what is kept of a token.
constexpr std::array<const char*, 18> kShaping = {
    "window", "sliding", "kv",    "layer_types", "compress", "index",     "linear_",        "conv",  "mamba",
    "ssm",    "chunk",   "cross", "attn_type",   "head_dim", "lora_rank", "attention_type", "state", "cache"};

bool IsNothing(const nlohmann::json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_number() && value.get<double>() == 0) ||
         (value.is_string() && value.get<std::string>().empty()) || (value.is_structured() && value.empty());
}

std::string Short(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

const nlohmann::json* ConfigReader::Find(const std::string& key) {
  asked_.insert(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigReader::Has(const std::string& key) {
  const nlohmann::json* value = Find(key);
  return value != nullptr && !(value->is_boolean() && !value->get<bool>());
}

void ConfigReader::Refuse(const std::string& key, const std::string& what) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat("config: ", path_, key, " ", what));
}

uint32_t ConfigReader::Number(const std::string& key, uint32_t max) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return Refuse(key, "is missing"), 0;
  if (!value->is_number_unsigned() || value->get<uint64_t>() == 0 || value->get<uint64_t>() > max)
    return Refuse(key, absl::StrCat("is ", Short(*value), ", no whole number from 1 to ", max)), 0;
  return value->get<uint32_t>();
}

uint32_t ConfigReader::NumberOr(const std::string& key, uint32_t max, uint32_t left_out) {
  return Find(key) == nullptr ? left_out : Number(key, max);
}

std::string ConfigReader::Text(const std::string& key) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return "";
  if (!value->is_string()) return Refuse(key, absl::StrCat("is ", Short(*value), ", no text")), "";
  return value->get<std::string>();
}

std::vector<std::string> ConfigReader::Texts(const std::string& key, size_t max) {
  std::vector<std::string> texts;
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return texts;
  if (!value->is_array() || value->size() > max)
    return Refuse(key, absl::StrCat("is ", Short(*value), ", no list of up to ", max)), texts;
  for (const nlohmann::json& one : *value) {
    if (!one.is_string()) return Refuse(key, absl::StrCat("has ", Short(one), ", no text")), texts;
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

std::vector<uint32_t> ConfigReader::Numbers(const std::string& key, size_t max) {
  std::vector<uint32_t> numbers;
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return numbers;
  if (!value->is_array() || value->size() > max)
    return Refuse(key, absl::StrCat("is ", Short(*value), ", no list of up to ", max)), numbers;
  for (const nlohmann::json& one : *value) {
    if (!one.is_number_unsigned() || one.get<uint64_t>() > UINT32_MAX)
      return Refuse(key, absl::StrCat("has ", Short(one), ", no whole number")), numbers;
    numbers.push_back(one.get<uint32_t>());
  }
  return numbers;
}

void ConfigReader::Ignore(std::initializer_list<const char*> keys) {
  for (const char* key : keys) asked_.insert(key);
}

const nlohmann::json* ConfigReader::Object(const std::string& key) {
  const nlohmann::json* value = Find(key);
  if (value != nullptr && !value->is_object()) return Refuse(key, "is no object"), nullptr;
  return value;
}

void ConfigReader::RefuseUnasked() {
  for (const auto& [key, value] : object_.items()) {
    if (asked_.contains(key) || IsNothing(value)) continue;
    const bool shaping = std::any_of(kShaping.begin(), kShaping.end(), [&key = key](const char* word) {
      return key.find(word) != std::string::npos;
    });
    if (shaping)
      Refuse(key, absl::StrCat("is ", Short(value), "; this reader does not know what it does to the KV"));
  }
}

}  // namespace cistern::layout
