#include "core/formats/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "core/bytes.h"
#include "core/formats/break_even.h"
#include "core/formats/testing/values.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

constexpr std::array<StoredForm, 3> kForms = {StoredForm::kE4m3, StoredForm::kInt8, StoredForm::kInt4};

// A slice of one KV head: K and V of 128 elements beside each other, as BHLNC pages have them.
BfPartShape OneHead(uint32_t layers, uint32_t tokens) {
  return {.sequences = layers, .rows = tokens, .row_tile = 1, .planes = {{128, true}, {128, false}}};
}
LayoutSpec LayoutOf(const BfPartShape& shape) {
  return {.model = "m",
          .block_tokens = 64,
          .part_bytes = static_cast<uint32_t>(shape.RawBytes()),
          .dtype = "bf16",
          .geometry = "heads=8 head=128 kv"};
}

class Compression : public ::testing::Test {
 protected:
  absl::Span<const std::byte> Odd(const std::vector<uint16_t>& values) {
    return {AtOddAddress(values, memory_), values.size() * 2};
  }
  const uint64_t seed_ = static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed());
  ::testing::ScopedTrace trace_{__FILE__, __LINE__,
                                "seed " + std::to_string(seed_) + " (--gtest_random_seed)"};
  Random random_{seed_};
  std::vector<std::byte> memory_;
};

TEST_F(Compression, SizesAreThoseOfTheRows) {
  const BfPartShape shape = OneHead(32, 64);
  EXPECT_EQ(shape.RawBytes(), 1u << 20);
  EXPECT_EQ(StoredBytes(shape, StoredForm::kE4m3), 32u * 64 * 2 * (128 + 4));
  EXPECT_EQ(StoredBytes(shape, StoredForm::kInt8), 32u * 64 * 2 * (128 + 4));
  // A tile of 32 tokens: 32 x 64 bytes of codes, and 2 x 2 bytes for each channel of K or each 32 channels of
  // V.
  EXPECT_EQ(StoredBytes(shape, StoredForm::kInt4), 32u * 2 * (2 * 32 * 64 + 128 * 4 + 32 * 4 * 4));
}

// Every element within the bound of its form, found by an index computed here:
// [sequence][tile][plane][row][element].
TEST_F(Compression, PartsComeBackWithinTheirBounds) {
  const std::vector<BfPartShape> shapes = {
      OneHead(3, 64),
      {.sequences = 2, .rows = 64, .row_tile = 64, .planes = {{64, true}, {64, false}}},
      {.sequences = 1, .rows = 96, .row_tile = 32, .planes = {{576, false}}},
      {.sequences = 2, .rows = 32, .row_tile = 16, .planes = {{192, true}, {128, false}, {2, false}}},
      {.sequences = 1, .rows = 32, .row_tile = 4, .planes = {{34, false}, {34, true}}}};
  for (const BfPartShape& shape : shapes) {
    uint32_t row_elements = 0;
    for (const BfPlane& plane : shape.planes) row_elements += plane.elements;
    const std::vector<uint16_t> in = CacheValues(random_, shape.RawBytes() / 2);
    for (const StoredForm form : kForms) {
      std::vector<std::byte> stored(StoredBytes(shape, form) + 1);
      std::vector<uint16_t> out(in.size());
      const auto to = absl::MakeSpan(stored).subspan(1);
      ASSERT_TRUE(CompressPart(shape, form, Odd(in), to).ok());
      ASSERT_TRUE(
          DecompressPart(shape, form, to, {reinterpret_cast<std::byte*>(out.data()), out.size() * 2}).ok());
      const auto at = [&](uint32_t sequence, uint32_t row, uint32_t before, uint32_t elements, uint32_t e) {
        const uint32_t tile = row / shape.row_tile * shape.row_tile;
        return (size_t{sequence} * shape.rows + tile) * row_elements + before * shape.row_tile +
               row % shape.row_tile * elements + e;
      };
      for (uint32_t sequence = 0; sequence < shape.sequences; ++sequence) {
        uint32_t before = 0;
        for (const BfPlane& plane : shape.planes) {
          for (uint32_t row = 0; row < shape.rows; ++row) {
            for (uint32_t e = 0; e < plane.elements; ++e) {
              double amax = 0, min = 1e9, max = -1e9;
              const bool channel = form == StoredForm::kInt4 && plane.per_channel;
              const bool narrow = form == StoredForm::kInt4 && !plane.per_channel;
              const uint32_t first = channel ? row / 32 * 32 : narrow ? e / 32 * 32 : 0;
              const uint32_t end = channel  ? first + 32
                                   : narrow ? std::min(first + 32, plane.elements)
                                            : plane.elements;
              for (uint32_t i = first; i < end; ++i) {
                const size_t index = channel ? at(sequence, i, before, plane.elements, e)
                                             : at(sequence, row, before, plane.elements, i);
                const double value = Bf16ToFloat(in[index]);
                amax = std::max(amax, std::fabs(value)), min = std::min(min, value),
                max = std::max(max, value);
              }
              const size_t index = at(sequence, row, before, plane.elements, e);
              const double value = Bf16ToFloat(in[index]);
              const double codec = form == StoredForm::kE4m3
                                       ? std::max(std::fabs(value) / 16, amax / 448 / 1024)
                                   : form == StoredForm::kInt8 ? amax / 254
                                                               : (max - min) / 30 * (1 + 0x1p-7);
              ASSERT_LE(std::fabs(Bf16ToFloat(out[index]) - value),
                        (codec + (std::fabs(value) + codec) / 256) * (1 + 0x1p-15))
                  << StoredFormName(form) << " plane " << before << " row " << row << " element " << e;
            }
          }
          before += plane.elements;
        }
      }
    }
  }
}

TEST_F(Compression, ZerosComeBackAndEqualValuesExactlyInInt4) {
  const BfPartShape shape = OneHead(1, 32);
  for (const uint16_t value : {0x0000, 0x4049, 0xc640}) {
    const std::vector<uint16_t> in(shape.RawBytes() / 2, value);
    std::vector<std::byte> stored(StoredBytes(shape, StoredForm::kInt4));
    std::vector<uint16_t> out(in.size());
    ASSERT_TRUE(CompressPart(shape, StoredForm::kInt4, Odd(in), absl::MakeSpan(stored)).ok());
    ASSERT_TRUE(DecompressPart(shape, StoredForm::kInt4, stored,
                               {reinterpret_cast<std::byte*>(out.data()), out.size() * 2})
                    .ok());
    EXPECT_EQ(in, out);
  }
}

TEST_F(Compression, RefusesValuesThatNoFormHolds) {
  const BfPartShape shape = OneHead(2, 32);
  for (const StoredForm form : kForms) {
    for (const uint16_t bad : {0x7f80, 0xff80, 0x7fc0}) {
      std::vector<uint16_t> in = CacheValues(random_, shape.RawBytes() / 2);
      in[random_.Below(in.size())] = bad;
      std::vector<std::byte> stored(StoredBytes(shape, form));
      const absl::Status status = CompressPart(shape, form, Odd(in), absl::MakeSpan(stored));
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(status.message(), HasSubstr("store it as bf16"));
    }
  }
}

// F05: bytes of one element type are never taken for those of another: each form is another layout.
TEST_F(Compression, F05_EachFormHasItsOwnLayoutId) {
  const BfPartShape shape = OneHead(32, 64);
  const LayoutSpec raw = LayoutOf(shape);
  std::set<std::string> ids = {
      std::string(reinterpret_cast<const char*>(ComputeLayoutId(raw).bytes.data()), 16)};
  for (const StoredForm form : kForms) {
    const absl::StatusOr<LayoutSpec> stored = StoredLayout(raw, shape, form);
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(stored->part_bytes, StoredBytes(shape, form));
    EXPECT_EQ(stored->dtype, StoredFormName(form));
    ids.insert(std::string(reinterpret_cast<const char*>(ComputeLayoutId(*stored).bytes.data()), 16));
  }
  EXPECT_EQ(ids.size(), 4u);
}

TEST_F(Compression, F55_RefusesShapesThatCannotBeAndNamesTheField) {
  const auto refused = [](const std::function<void(BfPartShape&)>& change, StoredForm form,
                          const char* field) {
    BfPartShape shape = OneHead(2, 64);
    change(shape);
    const absl::Status status = ValidateShape(shape, form);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(status.message(), HasSubstr(field));
    std::vector<std::byte> bytes(64);
    EXPECT_FALSE(CompressPart(shape, form, bytes, absl::MakeSpan(bytes)).ok());
    EXPECT_FALSE(DecompressPart(shape, form, bytes, absl::MakeSpan(bytes)).ok());
    EXPECT_THAT(StoredLayout(LayoutOf(OneHead(2, 64)), shape, form).status().message(), HasSubstr(field));
  };
  for (const StoredForm form : kForms) {
    refused([](auto& s) { s.sequences = 0; }, form, "sequences is 0");
    refused([](auto& s) { s.sequences = UINT32_MAX; }, form, "sequences is 4294967295");
    refused([](auto& s) { s.rows = 0; }, form, "rows is 0");
    refused([](auto& s) { s.row_tile = 0; }, form, "row_tile is 0");
    refused([](auto& s) { s.planes.clear(); }, form, "planes is 0");
    refused([](auto& s) { s.planes.resize(kPlanesMax + 1, {2, false}); }, form, "planes is 9");
    refused([](auto& s) { s.planes[0].elements = 0; }, form, "elements is 0");
    refused([](auto& s) { s.planes[1].elements = kPlaneElementsMax + 1; }, form, "elements is 65537");
    refused([](auto& s) { s.sequences = 1u << 20; }, form, "rows x sequences");
    refused([](auto& s) { s.row_tile = 48; }, form, "not a multiple of row_tile 48");
  }
  refused([](auto& s) { s.rows = 48; }, StoredForm::kInt4, "not a multiple of the 32 tokens");
  refused([](auto& s) { s.planes[0].elements = 127; }, StoredForm::kInt4, "elements is 127, odd");
  EXPECT_TRUE(ValidateShape({.sequences = 1, .rows = 3, .planes = {{127, true}}}, StoredForm::kInt8).ok());
}

TEST_F(Compression, RefusesOtherSizesAndOtherDtypes) {
  const BfPartShape shape = OneHead(2, 64);
  std::vector<std::byte> raw(shape.RawBytes()), stored(StoredBytes(shape, StoredForm::kInt8));
  const auto less = absl::MakeSpan(stored).first(stored.size() - 1);
  EXPECT_THAT(CompressPart(shape, StoredForm::kInt8, raw, less).message(), HasSubstr("stored part has"));
  EXPECT_THAT(DecompressPart(shape, StoredForm::kInt8, less, absl::MakeSpan(raw)).message(),
              HasSubstr("stored part has"));
  EXPECT_THAT(CompressPart(shape, StoredForm::kInt8, less, absl::MakeSpan(stored)).message(),
              HasSubstr("part has"));
  LayoutSpec fp16 = LayoutOf(shape);
  fp16.dtype = "fp16";
  EXPECT_THAT(StoredLayout(fp16, shape, StoredForm::kInt8).status().message(), HasSubstr("dtype is fp16"));
  EXPECT_THAT(StoredLayout(LayoutOf(OneHead(1, 64)), shape, StoredForm::kInt8).status().message(),
              HasSubstr("part has"));
  EXPECT_EQ(ParseStoredForm("int4"), StoredForm::kInt4);
  EXPECT_EQ(ParseStoredForm("fp8"), std::nullopt);
}

TEST(BreakEven, IsWhereBothWaysTakeTheSameTime) {
  const FormFigures half = {
      .form = StoredForm::kInt8, .encode_gbps = 4, .decode_gbps = 8, .raw_bytes = 1000, .stored_bytes = 500};
  const BreakEven at = BreakEvenOf(half);
  EXPECT_DOUBLE_EQ(at.store_gbps, 2);
  EXPECT_DOUBLE_EQ(at.load_gbps, 4);
  EXPECT_DOUBLE_EQ(1 / at.load_gbps, 1 / half.decode_gbps + 0.5 / at.load_gbps);
  EXPECT_EQ(
      BreakEvenOf({.encode_gbps = 4, .decode_gbps = 8, .raw_bytes = 500, .stored_bytes = 500}).load_gbps, 0);
  EXPECT_EQ(BreakEvenOf({.raw_bytes = 500, .stored_bytes = 250}).store_gbps, 0);
}

TEST(BreakEven, TheChoiceSaysWhyAndNeverTakesWhatIsNotAllowed) {
  const std::vector<FormFigures> allowed = {
      {.form = StoredForm::kInt8, .encode_gbps = 4, .decode_gbps = 8, .raw_bytes = 1000, .stored_bytes = 516},
      {.form = StoredForm::kInt4,
       .encode_gbps = 0.5,
       .decode_gbps = 1,
       .raw_bytes = 1000,
       .stored_bytes = 313}};
  const StorageChoice disk =
      ChooseStoredForm(allowed, {.write_gbps = 1, .read_gbps = 1.5, .reads_per_write = 3});
  EXPECT_EQ(disk.form, StoredForm::kInt8);
  EXPECT_LT(disk.seconds_per_gb, disk.seconds_per_gb_raw);
  EXPECT_THAT(disk.why, HasSubstr("stored as int8: over 1 GB/s out and 1.5 GB/s in, 3 reads a write"));
  const StorageChoice slow = ChooseStoredForm(allowed, {.write_gbps = 0.05, .read_gbps = 0.05});
  EXPECT_EQ(slow.form, StoredForm::kInt4);
  const StorageChoice fast = ChooseStoredForm(allowed, {.write_gbps = 12, .read_gbps = 12});
  EXPECT_EQ(fast.form, std::nullopt);
  EXPECT_THAT(fast.why, HasSubstr("no allowed form is quicker"));
  EXPECT_EQ(fast.seconds_per_gb, fast.seconds_per_gb_raw);
  EXPECT_THAT(ChooseStoredForm({}, {.write_gbps = 1, .read_gbps = 1}).why, HasSubstr("no form is allowed"));
  EXPECT_THAT(ChooseStoredForm(allowed, {}).why, HasSubstr("have not been measured"));
}

// On either side of the break-even of a single load the choice differs.
TEST(BreakEven, TheChoiceTurnsAtTheBreakEven) {
  const FormFigures f = {
      .form = StoredForm::kInt8, .encode_gbps = 5, .decode_gbps = 5, .raw_bytes = 2, .stored_bytes = 1};
  const double at = BreakEvenOf(f).load_gbps;
  EXPECT_TRUE(ChooseStoredForm({&f, 1}, {.write_gbps = at * 0.99, .read_gbps = at * 0.99}).form.has_value());
  EXPECT_FALSE(ChooseStoredForm({&f, 1}, {.write_gbps = at * 1.01, .read_gbps = at * 1.01}).form.has_value());
}

}  // namespace
}  // namespace cistern
