// Exact small vectors of what attention over stored KV computes, by plain formulas: they pin the file that
// kernels are tested with. Codes of quantised rows are core/formats' own tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/layout/geometry.h"
#include "proto/layout_catalog.h"
#include "tests/articles/vectors.h"

namespace cistern {
namespace {

using Row = std::vector<double>;
using Matrix = std::vector<Row>;

const Vector& Kernel(const std::string& id) { return FindVector("kernel_vectors", id); }

void ExpectNear(const Row& got, const Vector& want, double tolerance = 5e-9) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i].get<double>(), tolerance) << i;
}

double Dot(const Row& a, const Row& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

struct Attended {
  Row o;
  double lse = 0;
};
Attended Attend(const Row& q, const Matrix& k, const Matrix& v, double scale) {
  Attended out{.o = Row(v.at(0).size(), 0.0)};
  double sum = 0;
  for (size_t i = 0; i < k.size(); ++i) {
    const double weight = std::exp(scale * Dot(q, k[i]));
    sum += weight;
    for (size_t j = 0; j < out.o.size(); ++j) out.o[j] += weight * v[i][j];
  }
  for (double& value : out.o) value /= sum;
  out.lse = std::log(sum);
  return out;
}

TEST(KernelVectors, PartsOfASoftmaxMergeByTheirLogSums) {
  const Vector& v = Kernel("lse_merge");
  const Matrix k = v["k"], values = v["v"];
  const Attended full = Attend(v["q"], k, values, v["scale"]);
  ExpectNear(full.o, v["o_full"]);
  EXPECT_NEAR(full.lse, v["lse_full"].get<double>(), 5e-9);
  const size_t first = v["split"][0];
  const Attended a = Attend(v["q"], Matrix(k.begin(), k.begin() + first),
                            Matrix(values.begin(), values.begin() + first), v["scale"]);
  const Attended b = Attend(v["q"], Matrix(k.begin() + first, k.end()),
                            Matrix(values.begin() + first, values.end()), v["scale"]);
  ExpectNear(a.o, v["parts"][0]["o"]);
  ExpectNear(b.o, v["parts"][1]["o"]);
  EXPECT_NEAR(a.lse, v["parts"][0]["lse"].get<double>(), 5e-9);
  EXPECT_NEAR(b.lse, v["parts"][1]["lse"].get<double>(), 5e-9);
  const double share = 1 / (1 + std::exp(b.lse - a.lse));
  Row merged;
  for (size_t i = 0; i < a.o.size(); ++i) merged.push_back(share * a.o[i] + (1 - share) * b.o[i]);
  ExpectNear(merged, v["merged"]);
  // A sink is in the denominator alone.
  const Vector& sink = Kernel("sink");
  Row with_sink = full.o;
  for (double& value : with_sink) value /= 1 + std::exp(sink["sink"].get<double>() - full.lse);
  ExpectNear(with_sink, sink["o"]);
  ExpectNear(with_sink, sink["check"]);
}

// Rotates pairs (0, 1), (2, 3), ... or, as NeoX does, (0, n/2), (1, n/2 + 1), ...
Row Rotate(Row x, double pos, double theta, bool neox) {
  const size_t half = x.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const double angle = pos * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(x.size()));
    double& a = x[neox ? i : 2 * i];
    double& b = x[neox ? i + half : 2 * i + 1];
    const double was = a;
    a = was * std::cos(angle) - b * std::sin(angle);
    b = was * std::sin(angle) + b * std::cos(angle);
  }
  return x;
}

TEST(KernelVectors, ARotatedKeyMovesByRotatingItFurther) {
  const Vector& v = Kernel("rope_shift");
  const double theta = v["theta"], pos = v["pos"], delta = v["delta"];
  const Row at_7 = Rotate(v["x"], pos, theta, false);
  ExpectNear(at_7, v["interleaved_at7"]);
  ExpectNear(Rotate(at_7, delta, theta, false), v["shifted"]);
  ExpectNear(Rotate(v["x"], pos + delta, theta, false), v["direct_at12"]);
  ExpectNear(Rotate(v["x"], pos + delta, theta, true), v["neox_at12"]);
}

TEST(KernelVectors, RotatingTheSumBackLeavesRelativePositions) {
  const Vector& v = Kernel("inverse_rope_identity");
  const Matrix kv = v["kv"];
  Row sum(kv[0].size(), 0.0), relative(kv[0].size(), 0.0);
  const double t = v["t"];
  for (size_t i = 0; i < kv.size(); ++i) {
    const double pos = v["pos"][i], prob = v["probs"][i];
    const Row absolute_row = Rotate(kv[i], pos, 10000, false),
              relative_row = Rotate(kv[i], pos - t, 10000, false);
    for (size_t j = 0; j < sum.size(); ++j) {
      sum[j] += prob * absolute_row[j];
      relative[j] += prob * relative_row[j];
    }
  }
  ExpectNear(Rotate(sum, -t, 10000, false), v["out_after_inverse"]);
  ExpectNear(relative, v["equals_relative_sum"]);
}

TEST(KernelVectors, TheIndexerScoresByRectifiedProducts) {
  const Vector& v = Kernel("lightning_indexer");
  const Matrix q = v["q"], k = v["k"];
  Row scores;
  for (const Row& key : k) {
    double score = 0;
    for (size_t h = 0; h < q.size(); ++h) score += v["w"][h].get<double>() * std::max(0.0, Dot(q[h], key));
    scores.push_back(score);
  }
  ExpectNear(scores, v["scores"], 1e-9);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b] + 1e-12; });
  for (size_t i = 0; i < v["topk3"].size(); ++i) EXPECT_EQ(order[i], v["topk3"][i].get<size_t>());
}

TEST(KernelVectors, ACompressedRowPoolsTwoWindows) {
  const Vector& v = Kernel("csa_overlap_pool");
  const size_t m = v["m"], d = v["d"];
  const Matrix c = v["C"], z = v["Z"];
  // Entry w: series a of the window before, series b of its own; the first has no window before it.
  const auto entry = [&](size_t w) {
    Row out;
    for (size_t j = 0; j < d; ++j) {
      double sum = 0, total = 0;
      const auto add = [&](size_t token, size_t column) {
        const double weight = std::exp(z[token][column]);
        total += weight;
        sum += weight * c[token][column];
      };
      for (size_t i = 0; i < m; ++i) {
        if (w > 0) add((w - 1) * m + i, j);
        add(w * m + i, d + j);
      }
      out.push_back(sum / total);
    }
    return out;
  };
  ExpectNear(entry(0), v["entry0"]);
  ExpectNear(entry(1), v["entry1"]);
}

TEST(KernelVectors, CompressedRowsThatAQuerySees) {
  const layout::Layout v4 = FindLayout("deepseek-v4-pro")->layout;
  const uint64_t m4 = v4.groups[0].segments[0].tokens_per_row, m128 = v4.groups[0].segments[2].tokens_per_row;
  for (const Vector& c : Kernel("v4_visible_entries")["cases"]) {
    const uint64_t t = c["t"];
    EXPECT_EQ((t + 1) / m4, c["m4"].get<uint64_t>()) << t;
    EXPECT_EQ((t + 1) / m128, c["m128"].get<uint64_t>()) << t;
  }
}

TEST(KernelVectors, BlocksThatATailNeeds) {
  const auto window = [](const char* name, size_t group) {
    return FindLayout(name)->layout.groups[group].window_tokens;
  };
  for (const Vector& c : Kernel("swa_tail_blocks")["cases"]) {
    const uint64_t w = c["window"], block = c["block"];
    EXPECT_EQ((w - 1 + block - 1) / block, c["blocks_needed"].get<uint64_t>()) << c["group"];
  }
  const Vector& cases = Kernel("swa_tail_blocks")["cases"];
  EXPECT_EQ(window("deepseek-v4-pro", 1), cases[0]["window"]);
  EXPECT_EQ(window("deepseek-v4-pro", 2), cases[1]["window"]);
  EXPECT_EQ(window("deepseek-v4-pro", 3), cases[2]["window"]);
  EXPECT_EQ(window("gemma-3-27b", 1), cases[3]["window"]);
  EXPECT_EQ(window("gpt-oss-20b", 1), cases[4]["window"]);
}

TEST(KernelVectors, PagesOfDeepSeekV4AreRowsOfTheLayoutPadded) {
  const Vector& v = Kernel("v4_page_sizes");
  const layout::Layout v4 = FindLayout("deepseek-v4-pro")->layout,
                       fp8 = FindLayout("deepseek-v4-pro-fp8")->layout;
  const auto row = [](const layout::Layout& layout, size_t group, size_t segment) {
    return layout::RowBytes(layout.groups[group].segments[segment]);
  };
  const std::vector<std::pair<const char*, uint64_t>> raw = {
      {"c4_main_256tok", 64 * row(v4, 0, 0)},  {"swa_64tok", 64 * row(v4, 1, 0)},
      {"c128_main_256tok", 2 * row(v4, 0, 2)}, {"idx_fp8_256tok", 64 * row(fp8, 0, 1)},
      {"idx_fp4_256tok", 64 * row(v4, 0, 1)},  {"c4_state_4tok", 4 * row(v4, 2, 0)},
      {"c128_state_8tok", 8 * row(v4, 3, 0)},  {"idx_state_4tok", 4 * row(v4, 2, 1)}};
  EXPECT_EQ(raw.size(), v["pages"].size());
  const uint64_t align = v["align"];
  for (const auto& [name, bytes] : raw) {
    EXPECT_EQ(bytes, v["pages"][name]["raw"].get<uint64_t>()) << name;
    EXPECT_EQ((bytes + align - 1) / align * align, v["pages"][name]["padded"].get<uint64_t>()) << name;
  }
}

}  // namespace
}  // namespace cistern
