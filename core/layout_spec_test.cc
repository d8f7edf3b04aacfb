#include "core/layout_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace cistern {
namespace {

using ::testing::HasSubstr;

LayoutSpec Llama8b() {
  return {.model = "llama-3-8b",
          .block_tokens = 64,
          .part_bytes = 1u << 20,
          .slices = 8,
          .spans = 1,
          .dtype = "bf16",
          .geometry = "heads=8 head=128 kv"};
}

void ExpectRefused(const LayoutSpec& layout, const char* field) {
  const absl::Status status = ValidateLayout(layout);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
  EXPECT_THAT(status.message(), HasSubstr(field));
}

TEST(LayoutSpec, TakesTheSmallestAndTheLargest) {
  EXPECT_TRUE(ValidateLayout(Llama8b()).ok());
  EXPECT_TRUE(ValidateLayout({.model = "", .block_tokens = 1, .part_bytes = kPartBytesMin}).ok());
  EXPECT_TRUE(ValidateLayout({.model = std::string(kModelBytesMax, 'm'),
                              .block_tokens = kBlockTokensMax,
                              .part_bytes = kPartBytesMax,
                              .slices = kSlicesMax,
                              .dtype = std::string(kDtypeBytesMax, 'd'),
                              .geometry = std::string(kGeometryBytesMax, 'g')})
                  .ok());
}

TEST(LayoutSpec, F55_RefusesSizesThatCannotBeAndNamesTheField) {
  const auto with = [](const std::function<void(LayoutSpec&)>& change) {
    LayoutSpec layout = Llama8b();
    change(layout);
    return layout;
  };
  ExpectRefused(LayoutSpec{}, "block_tokens is 0");
  ExpectRefused(with([](LayoutSpec& l) { l.block_tokens = 0; }), "block_tokens is 0");
  ExpectRefused(with([](LayoutSpec& l) { l.block_tokens = kBlockTokensMax + 1; }), "block_tokens is 4097");
  ExpectRefused(with([](LayoutSpec& l) { l.part_bytes = 0; }), "part_bytes is 0");
  ExpectRefused(with([](LayoutSpec& l) { l.part_bytes = kPartBytesMax + 1; }), "part_bytes is 4194305");
  ExpectRefused(with([](LayoutSpec& l) { l.part_bytes = UINT32_MAX; }), "part_bytes");
  ExpectRefused(with([](LayoutSpec& l) { l.slices = 0; }), "slices is 0");
  ExpectRefused(with([](LayoutSpec& l) { l.slices = kSlicesMax + 1; }), "slices is 257");
  ExpectRefused(with([](LayoutSpec& l) { l.spans = 0; }), "spans is 0");
  ExpectRefused(with([](LayoutSpec& l) { l.spans = kSpansMax + 1; }), "spans is 65");
  ExpectRefused(with([](LayoutSpec& l) { l.spans = 33; }), "slices x spans is 264");
  ExpectRefused(with([](LayoutSpec& l) { l.slices = l.spans = UINT16_MAX; }), "slices");
  ExpectRefused(with([](LayoutSpec& l) { l.dtype.clear(); }), "dtype");
  ExpectRefused(with([](LayoutSpec& l) { l.dtype = std::string(kDtypeBytesMax + 1, 'x'); }), "dtype");
  ExpectRefused(with([](LayoutSpec& l) { l.geometry = std::string(kGeometryBytesMax + 1, 'x'); }),
                "geometry");
  ExpectRefused(with([](LayoutSpec& l) { l.model = std::string(kModelBytesMax + 1, 'x'); }), "model");
}

TEST(LayoutSpec, F55_RefusesAPartThatIsNoWholeNumberOfElements) {
  LayoutSpec layout = Llama8b();
  layout.part_bytes = 65537;
  ExpectRefused(layout, "part_bytes is 65537, not a multiple of the 2 bytes");
  layout.dtype = "fp32";
  layout.part_bytes = 65538;
  ExpectRefused(layout, "multiple of the 4 bytes");
  layout.dtype = "opaque";
  EXPECT_TRUE(ValidateLayout(layout).ok());
}

TEST(LayoutSpec, IdIsFixedForever) {
  // Made once by a script of its own from the description of the encoding; a change here makes every stored
  // block unreachable.
  EXPECT_EQ(ToHex(ComputeLayoutId(Llama8b())), "362772e456d3d1be1cab4f7648dcff2b");
}

TEST(LayoutSpec, EveryHashedFieldChangesTheIdAndTheModelNameDoesNot) {
  std::set<std::string> ids;
  LayoutSpec layout = Llama8b();
  const auto add = [&] { ids.insert(ToHex(ComputeLayoutId(layout))); };
  add();
  layout.model = "another name";
  add();
  EXPECT_EQ(ids.size(), 1u);
  layout.block_tokens = 65;
  add();
  layout.part_bytes += 2;
  add();
  layout.slices = 1;
  add();
  layout.slices = 8, layout.spans = 8;
  add();
  layout.slices = 1, layout.spans = 8;
  add();
  layout.dtype = "fp16";
  add();
  layout.geometry += "x";
  add();
  EXPECT_EQ(ids.size(), 8u);
}

TEST(LayoutSpec, ABorderBetweenTextFieldsChangesTheId) {
  LayoutSpec a = Llama8b(), b = Llama8b();
  a.dtype = std::string("ab"), a.geometry = std::string("c");
  b.dtype = std::string("a"), b.geometry = std::string("bc");
  EXPECT_NE(ComputeLayoutId(a), ComputeLayoutId(b));
}

TEST(LayoutSpec, AllCoordsAreSliceMajorAndPackUnpack) {
  LayoutSpec layout = Llama8b();
  layout.slices = 3, layout.spans = 2;
  const std::vector<PartCoord> coords = AllCoords(layout);
  ASSERT_EQ(coords.size(), layout.PartsPerBlock());
  EXPECT_EQ(layout.BlockBytes(), 6u << 20);
  for (uint32_t i = 0; i < coords.size(); ++i) {
    EXPECT_EQ(coords[i].slice, i / 2);
    EXPECT_EQ(coords[i].span, i % 2);
    EXPECT_EQ(PartCoord::Unpack(coords[i].Packed()), coords[i]);
  }
}

}  // namespace
}  // namespace cistern
