#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/random.h"

namespace cistern {

// Changes an input a little: bits, bytes, whole little-endian integers, cuts, copies, splices with another
// input. Everything comes from the Random given. One thread.
class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, size_t bytes_max)
      : corpus_(corpus), bytes_max_(bytes_max) {}
  std::string Draw(Random& random) const;

 private:
  void Change(Random& random, std::string& input) const;
  void Overwrite(Random& random, std::string& input) const;

  const std::vector<std::string>& corpus_;
  const size_t bytes_max_;
};

}  // namespace cistern
