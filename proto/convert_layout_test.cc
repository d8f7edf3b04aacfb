#include "proto/convert_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cistern {
namespace {

using ::testing::HasSubstr;

LayoutSpec SomeLayout() {
  LayoutSpec layout;
  layout.model = "llama-3-8b";
  layout.block_tokens = 64;
  layout.part_bytes = 1u << 20;
  layout.slices = 8;
  layout.spans = 2;
  layout.dtype = "bf16";
  layout.geometry = "heads=8";
  return layout;
}

void ExpectRefused(const proto::Layout& wire, const char* why) {
  const absl::StatusOr<LayoutSpec> layout = FromWire(wire);
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(layout.status().message(), HasSubstr(why));
}

TEST(ConvertLayout, ComesBackWithTheSameIdThroughBytes) {
  proto::Layout wire;
  ASSERT_TRUE(wire.ParseFromString(ToWire(SomeLayout()).SerializeAsString()));
  const absl::StatusOr<LayoutSpec> layout = FromWire(wire);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(ComputeLayoutId(*layout), ComputeLayoutId(SomeLayout()));
  EXPECT_EQ(layout->model, "llama-3-8b");
  EXPECT_EQ(ToWire(*layout).SerializeAsString(), wire.SerializeAsString());
}

TEST(ConvertLayout, F55_RefusesWhatCannotBeAndNamesIt) {
  ExpectRefused(proto::Layout(), "encoding_version is 0");
  proto::Layout wire = ToWire(SomeLayout());
  wire.set_encoding_version(2);
  ExpectRefused(wire, "encoding_version is 2");
  wire = ToWire(SomeLayout());
  wire.clear_groups();
  ExpectRefused(wire, "0 groups");
  wire = ToWire(SomeLayout());
  *wire.add_groups() = wire.groups(0);
  ExpectRefused(wire, "2 groups");
  wire = ToWire(SomeLayout());
  wire.mutable_groups(0)->clear_family();
  ExpectRefused(wire, "family 0");
  wire = ToWire(SomeLayout());
  wire.set_block_tokens(0);
  ExpectRefused(wire, "block_tokens is 0");
  wire = ToWire(SomeLayout());
  wire.mutable_groups(0)->set_part_bytes(0);
  ExpectRefused(wire, "part_bytes is 0");
}

// As the first release wrote it, byte for byte: field numbers keep their meaning.
TEST(ConvertLayout, F61_StaysAsPublished) {
  const std::string wire(
      "\x08\x01\x12\x0a"
      "llama-3-8b"
      "\x18\x40\x22\x19\x08\x01\x10\x08\x18\x02\x20\x80\x80\x40\x2a\x04"
      "bf16"
      "\x32\x07"
      "heads=8",
      14 + 16 + 4 + 2 + 7);
  EXPECT_EQ(ToWire(SomeLayout()).SerializeAsString(), wire);
}

// A value that would fit only after its high bits are cut off.
TEST(ConvertLayout, F55_RefusesCountsThatDoNotFitTheirField) {
  proto::Layout wire = ToWire(SomeLayout());
  wire.mutable_groups(0)->set_slices(65536 + 8);
  ExpectRefused(wire, "slices is 65544");
  wire = ToWire(SomeLayout());
  wire.mutable_groups(0)->set_spans(65536 + 1);
  ExpectRefused(wire, "spans is 65537");
}

}  // namespace
}  // namespace cistern
