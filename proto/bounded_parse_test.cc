#include "proto/bounded_parse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

#include "proto/bounded_grpc.h"
#include "proto/cluster.pb.h"
#include "proto/convert_layout.h"
#include "proto/layout.pb.h"
#include "proto/layout_catalog_data.h"
#include "proto/layout_text.h"
#include "proto/router_state.pb.h"

namespace {

size_t g_largest = 0;

}  // namespace

// Not inlined, or GCC sees a free of what its own operator new gave.
[[gnu::noinline]] void* operator new(size_t bytes) {
  g_largest = std::max(g_largest, bytes);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace cistern {
namespace {

constexpr size_t kReservedMax = 64 << 10;  // Of a message of a few bytes; its objects and gRPC's slices.

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}

std::string Announce(uint32_t number, uint64_t bytes) {
  return Varint(uint64_t{number} << 3 | 2) + Varint(bytes);
}

// What a parse of `bytes` asks the allocator for at most; it has to refuse them.
size_t LargestOfRefused(google::protobuf::Message& message, const std::string& bytes) {
  g_largest = 0;
  EXPECT_FALSE(ParseBounded(message, bytes));
  return g_largest;
}

// ClusterMap.nodes (5) announces 1 GiB, and a field inside of it announces nearly as much.
std::string LyingMap(uint32_t inner) { return Announce(5, 1u << 30) + Announce(inner, 1u << 29) + "short"; }

TEST(BoundedParse, F29_ALengthBeyondTheInputReservesNothing) {
  const uint32_t known = 1, unknown = 31;
  for (const uint32_t inner : {known, unknown}) {
    proto::ClusterMap map;
    EXPECT_LE(LargestOfRefused(map, LyingMap(inner)), kReservedMax) << inner;
    proto::StoredMap stored;
    EXPECT_LE(LargestOfRefused(stored, Announce(2, 1u << 30) + LyingMap(inner)), kReservedMax) << inner;
  }
  proto::Layout layout;
  EXPECT_LE(LargestOfRefused(layout, Announce(31, 1u << 30) + "x"), kReservedMax);
}

TEST(BoundedParse, F29_OffTheWireOfGrpcToo) {
  // A string at the top: from a stream protobuf has no idea of the input's size.
  const uint32_t id = 1, unknown = 31;
  for (const uint32_t field : {id, unknown}) {
    const std::string bytes = Announce(field, 1u << 30) + "short";
    // One slice, and several, as a large message comes.
    const grpc::Slice slices[] = {grpc::Slice(bytes.substr(0, 3)), grpc::Slice(bytes.substr(3))};
    const grpc::Slice whole(bytes);
    for (grpc::ByteBuffer buffer : {grpc::ByteBuffer(&whole, 1), grpc::ByteBuffer(slices, 2)}) {
      proto::RegisterNodeRequest message;
      g_largest = 0;
      const grpc::Status status =
          grpc::SerializationTraits<proto::RegisterNodeRequest>::Deserialize(&buffer, &message);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
      EXPECT_LE(g_largest, kReservedMax);
    }
  }
  proto::RegisterNodeRequest message;
  EXPECT_FALSE(grpc::SerializationTraits<proto::RegisterNodeRequest>::Deserialize(nullptr, &message).ok());
}

TEST(BoundedParse, TakesWhatProtobufTakes) {
  for (const EmbeddedText& embedded : EmbeddedLayouts()) {
    const absl::StatusOr<layout::Layout> layout = ParseLayoutText(embedded.text, embedded.name);
    ASSERT_TRUE(layout.ok()) << layout.status();
    const proto::Layout wire = ToWire(*layout);
    proto::Layout again;
    ASSERT_TRUE(ParseBounded(again, wire.SerializeAsString())) << embedded.name;
    EXPECT_EQ(again.SerializeAsString(), wire.SerializeAsString());
  }
  proto::ClusterMap map;
  EXPECT_TRUE(ParseBounded(map, ""));
  // Fields of a later release: each wire type, and a group with a group inside.
  const std::string unknown = Varint(31 << 3 | 0) + Varint(UINT64_MAX) + Varint(32 << 3 | 1) +
                              std::string(8, 'x') + Varint(33 << 3 | 5) + std::string(4, 'x') +
                              Announce(34, 3) + "abc" + Varint(35 << 3 | 3) + Varint(36 << 3 | 3) +
                              Announce(1, 2) + "ab" + Varint(36 << 3 | 4) + Varint(35 << 3 | 4);
  EXPECT_TRUE(ParseBounded(map, unknown));
  EXPECT_EQ(map.SerializeAsString(), unknown);
}

TEST(BoundedParse, RefusesWhatIsBroken) {
  const std::string group = Varint(35 << 3 | 3);
  const struct {
    const char* what;
    std::string bytes;
  } cases[] = {
      {"a varint without end", std::string(11, '\xff')},
      {"a cut varint", "\x08\x80"},
      {"eight bytes cut short", Varint(31 << 3 | 1) + "1234567"},
      {"four bytes cut short", Varint(31 << 3 | 5) + "123"},
      {"a group without end", group},
      {"the end of another group", group + Varint(36 << 3 | 4)},
      {"an end without a group", Varint(35 << 3 | 4)},
      {"a wire type that is none", Varint(31 << 3 | 7)},
      {"a node longer than the map", Announce(5, 2) + "\x0a"},
      {"an id longer than its node", Announce(5, 3) + Announce(1, 2) + "a" + Announce(1, 0)},
  };
  for (const auto& one : cases) {
    proto::ClusterMap map;
    EXPECT_FALSE(ParseBounded(map, one.bytes)) << one.what;
  }
  std::string deep;
  for (int i = 0; i < kMessageDepthMax; ++i) deep += group;
  for (int i = 0; i < kMessageDepthMax; ++i) deep += Varint(35 << 3 | 4);
  proto::ClusterMap map;
  EXPECT_FALSE(ParseBounded(map, deep));
}

}  // namespace
}  // namespace cistern
