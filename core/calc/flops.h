#pragma once

#include <cstdint>
#include <vector>

#include "core/calc/model_facts.h"

namespace cistern {

// Longest prompt that the calculators take: sums of squares stay exact enough in a double.
inline constexpr uint64_t kCalcTokensMax = uint64_t{1} << 27;

// Floating-point operations; a multiplication and an addition are two.
struct Flops {
  double linear = 0;            // 2 x linear_params a token: projections, MLPs, experts.
  double attention = 0;         // Scores and sums of all terms.
  std::vector<double> terms{};  // Of `attention`, in the order of ModelFacts::attention.
  double total() const { return linear + attention; }
};

// Keys that the first `queries` queries read under one term, summed: the sum over t of
// min(floor((t + 1) / stride), cap). `cap` 0 is none.
double VisibleKeys(uint64_t queries, uint64_t stride, uint64_t cap);

// What the prompt tokens [first, last) cost when those before them are cached, windows and states included.
Flops CountFlops(const ModelFacts& model, uint64_t first, uint64_t last);

}  // namespace cistern
