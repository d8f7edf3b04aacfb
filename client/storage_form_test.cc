#include "cistern/storage_form.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/formats/bf16.h"
#include "core/random.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 20331;

// 2 parts a block: 32 tokens of 4 heads, K and V of 64.
RawPart Part() { return {.sequences = 4, .rows = 32, .row_tile = 1, .planes = {{64, true}, {64, false}}}; }
Layout RawLayout() {
  Layout layout;
  layout.block_tokens = 32;
  layout.part_bytes = 4 * 32 * 128 * 2;
  layout.slices = 2;
  layout.dtype = "bf16";
  layout.geometry = "heads=8 d=64";
  return layout;
}
StoragePolicy Slow(std::vector<std::string> forms) {
  return {.forms = std::move(forms), .write_gbps = 0.001, .read_gbps = 0.001, .reads_per_write = 1};
}
std::vector<uint16_t> Values() {
  std::vector<uint16_t> out(2 * 4 * 32 * 128);
  Random random(kSeed);
  for (uint16_t& value : out) value = FloatToBf16(static_cast<float>(random.Unit() * 6 - 3));
  return out;
}

TEST(StorageForm, NobodyGetsItWhoDidNotAsk) {
  const Result<StorageForm> plain = StorageForm::Choose(RawLayout(), Part(), Slow({}));
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain.value().form(), "");
  EXPECT_NE(plain.value().why().find("no form is allowed"), std::string::npos) << plain.value().why();
  EXPECT_EQ(plain.value().layout().part_bytes, RawLayout().part_bytes);
  // Allowed, and the path is quicker than any encoder: as they are, and it says so.
  StoragePolicy fast = Slow({"e4m3", "int8", "int4"});
  fast.write_gbps = fast.read_gbps = 1e6;
  EXPECT_EQ(StorageForm::Choose(RawLayout(), Part(), fast).value().form(), "");
  // Unmeasured paths decide nothing.
  EXPECT_EQ(StorageForm::Choose(RawLayout(), Part(), {.forms = {"int8"}}).value().form(), "");
}

TEST(StorageForm, SlowPathsTakeTheSmallestFormThatIsAllowed) {
  const StorageForm four = StorageForm::Choose(RawLayout(), Part(), Slow({"e4m3", "int8", "int4"})).value();
  EXPECT_EQ(four.form(), "int4");
  EXPECT_NE(four.why().find("stored as int4"), std::string::npos) << four.why();
  EXPECT_EQ(StorageForm::Choose(RawLayout(), Part(), Slow({"int8"})).value().form(), "int8");
  EXPECT_LT(four.StoredPageBytes() * 3, uint64_t{2} * RawLayout().part_bytes);
}

// F05: pages of each form live under keys of their own.
TEST(StorageForm, F05_EveryFormIsALayoutOfItsOwn) {
  const Layout raw = RawLayout();
  for (const char* form : {"e4m3", "int8", "int4"}) {
    const Layout stored = StorageForm::Choose(raw, Part(), Slow({form})).value().layout();
    EXPECT_NE(stored.geometry, raw.geometry);
    EXPECT_EQ(stored.dtype, form);
    EXPECT_LT(stored.part_bytes, raw.part_bytes);
  }
}

TEST(StorageForm, PagesInPiecesComeBackWithinTheBound) {
  const std::vector<uint16_t> values = Values();
  for (const auto& [name, bound] :
       {std::pair("e4m3", 3.0 / 16), std::pair("int8", 3.0 / 254), std::pair("int4", 6.0 / 30 * 1.01)}) {
    const StorageForm form = StorageForm::Choose(RawLayout(), Part(), Slow({name})).value();
    ConstPage from;
    const size_t cut = 1000;
    from.pieces = {{values.data(), cut},
                   {reinterpret_cast<const std::byte*>(values.data()) + cut, values.size() * 2 - cut}};
    std::vector<std::byte> stored(form.StoredPageBytes());
    ASSERT_TRUE(form.Pack(from, stored.data()).ok()) << name;
    std::vector<uint16_t> back(values.size());
    ASSERT_TRUE(form.Unpack(stored.data(), Page(back.data(), back.size() * 2)).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(Bf16ToFloat(back[i]), Bf16ToFloat(values[i]), bound + 3.0 / 256) << name << " " << i;
    }
    EXPECT_FALSE(form.Unpack(stored.data(), Page(back.data(), back.size() * 2 - 2)).ok());
  }
}

TEST(StorageForm, RefusesByName) {
  const auto why = [](const Layout& layout, const RawPart& part, std::vector<std::string> forms) {
    return StorageForm::Choose(layout, part, Slow(std::move(forms))).status().message();
  };
  EXPECT_NE(why(RawLayout(), Part(), {"fp3"}).find("forms: \"fp3\""), std::string::npos);
  Layout fp16 = RawLayout();
  fp16.dtype = "fp16";
  EXPECT_NE(why(fp16, Part(), {"int8"}).find("dtype"), std::string::npos);
  RawPart none = Part();
  none.planes.clear();
  EXPECT_NE(why(RawLayout(), none, {"int8"}).find("planes"), std::string::npos);
  std::vector<uint16_t> values = Values();
  values[77] = 0x7f80;  // Infinity.
  const StorageForm form = StorageForm::Choose(RawLayout(), Part(), Slow({"int8"})).value();
  std::vector<std::byte> stored(form.StoredPageBytes());
  EXPECT_EQ(form.Pack(ConstPage(values.data(), values.size() * 2), stored.data()).code(),
            Code::kFailedPrecondition);
}

}  // namespace
}  // namespace cistern
