#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json_fwd.hpp"

namespace cistern::layout {

// Reads fields of one JSON object and remembers which were asked for, so that a field that shapes the KV and
// that nobody asked for can be refused by its name. The first error stays; after it every answer is 0 or
// empty. Borrows the object.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& object, std::string path) : object_(object), path_(std::move(path)) {}

  // There, not null, not false.
  bool Has(const std::string& key);
  uint32_t Number(const std::string& key, uint32_t max);
  uint32_t NumberOr(const std::string& key, uint32_t max, uint32_t left_out);
  std::string Text(const std::string& key);
  std::vector<std::string> Texts(const std::string& key, size_t max);
  std::vector<uint32_t> Numbers(const std::string& key, size_t max);
  // For fields that change no byte of the KV.
  void Ignore(std::initializer_list<const char*> keys);
  const nlohmann::json* Object(const std::string& key);

  void Refuse(const std::string& key, const std::string& what);
  // A field whose name speaks of KV, windows or states, that was not asked for and is neither null, false, 0
  // nor empty.
  void RefuseUnasked();
  const absl::Status& status() const { return status_; }

 private:
  const nlohmann::json* Find(const std::string& key);

  const nlohmann::json& object_;
  const std::string path_;
  std::set<std::string> asked_;
  absl::Status status_;
};

}  // namespace cistern::layout
