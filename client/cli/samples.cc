#include "client/cli/samples.h"

#include <algorithm>
#include <cmath>

namespace cistern {

double Samples::Percentile(double share) {
  if (values_.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(values_.size()));
  const size_t at = std::clamp<size_t>(static_cast<size_t>(rank), 1, values_.size()) - 1;
  std::nth_element(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(at), values_.end());
  return values_[at];
}

}  // namespace cistern
