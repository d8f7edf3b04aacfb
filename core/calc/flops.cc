#include "core/calc/flops.h"

namespace cistern {
namespace {

// floor(1/stride) + … + floor(n/stride).
double SumOfFloors(uint64_t n, uint64_t stride) {
  const uint64_t rows = n / stride;
  const auto whole = static_cast<double>(rows);
  const auto rest = static_cast<double>(n - rows * stride);
  return static_cast<double>(stride) * whole * (whole - 1) / 2 + whole * (rest + 1);
}

// A token's turn of one head's state: decay (1), read with the key (2), outer product added (2), read with
// the query (2), each dk x dv.
constexpr double kStatePasses = 7;

double TermFlops(const AttentionTerm& term, uint64_t first, uint64_t last) {
  const double heads = double{1} * term.layers * term.heads;
  if (term.family == "state") {
    return heads * kStatePasses * term.qk_dim * term.v_dim * static_cast<double>(last - first);
  }
  const double keys = VisibleKeys(last, term.stride, term.cap) - VisibleKeys(first, term.stride, term.cap);
  return heads * 2 * (double{1} * term.qk_dim + term.v_dim) * keys;
}

}  // namespace

double VisibleKeys(uint64_t queries, uint64_t stride, uint64_t cap) {
  const uint64_t full_from = stride * cap;  // The query, counted from 1, from which on the cap holds.
  if (cap == 0 || queries < full_from) return SumOfFloors(queries, stride);
  return SumOfFloors(full_from - 1, stride) +
         static_cast<double>(cap) * static_cast<double>(queries - full_from + 1);
}

Flops CountFlops(const ModelFacts& model, uint64_t first, uint64_t last) {
  Flops flops;
  flops.linear = 2 * model.linear_params * static_cast<double>(last - first);
  for (const AttentionTerm& term : model.attention) {
    flops.terms.push_back(TermFlops(term, first, last));
    flops.attention += flops.terms.back();
  }
  return flops;
}

}  // namespace cistern
