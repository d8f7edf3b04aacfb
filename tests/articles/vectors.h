#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "nlohmann/json.hpp"

namespace cistern {

using Vector = nlohmann::json;

// One vector of testdata/article_vectors.json: "article_vectors" or "kernel_vectors", by id. An absent one
// fails.
inline const Vector& FindVector(const char* list, const std::string& id) {
  static const Vector kAll = Vector::parse(std::ifstream(CISTERN_ARTICLE_VECTORS), nullptr, false);
  static const Vector kNone;
  for (const Vector& vector : kAll.at(list)) {
    if (vector.at("id") == id) return vector;
  }
  ADD_FAILURE() << "no vector " << id << " in " << list;
  return kNone;
}

}  // namespace cistern
