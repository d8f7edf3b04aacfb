#include "transport/messages.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>

#include "absl/strings/escaping.h"
#include "core/chain.h"
#include "core/ticket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/message_samples.h"
#include "transport/wire_writer.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

// Names the seed when a check in its scope fails.
#define TRACE_SEED(seed) SCOPED_TRACE(::testing::Message() << kind.name << " seed " << (seed))

TEST(Messages, ComeBackAsTheyWereSent) {
  for (const MessageKind& kind : AllMessageKinds()) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      TRACE_SEED(seed);
      Random random(seed);
      const Bytes body = kind.encode_random(random);
      const absl::StatusOr<Bytes> again = kind.decode_and_encode(body);
      ASSERT_TRUE(again.ok()) << again.status();
      ASSERT_EQ(*again, body);
    }
  }
}

constexpr int kExtensionsMax = 2;  // Of one message: a chain request has sizes and tails, then retention.

TEST(Messages, S13_AreRefusedWhenCutAtAnyByteOrWithBytesBehind) {
  for (const MessageKind& kind : AllMessageKinds()) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      TRACE_SEED(seed);
      Random random(seed);
      Bytes body = kind.encode_random(random);
      int whole_cuts = 0;
      for (size_t bytes = 0; bytes < body.size(); ++bytes) {
        const absl::StatusOr<Bytes> cut = kind.decode_and_encode(ByteView(body.data(), bytes));
        if (cut.ok()) {  // Without its extensions it is another message, as older releases write it.
          ASSERT_EQ(*cut, Bytes(body.begin(), body.begin() + static_cast<ptrdiff_t>(bytes)));
          ASSERT_LE(++whole_cuts, kExtensionsMax) << bytes;
          continue;
        }
        ASSERT_EQ(cut.status().code(), absl::StatusCode::kInvalidArgument) << bytes;
        ASSERT_THAT(std::string(cut.status().message()), HasSubstr(kind.name));
      }
      body.push_back(std::byte{0});
      const absl::StatusOr<Bytes> longer = kind.decode_and_encode(body);
      ASSERT_EQ(longer.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(Messages, FlippedBitsAreRefusedOrReadAsSomethingLegal) {
  for (const MessageKind& kind : AllMessageKinds()) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      TRACE_SEED(seed);
      Random random(seed);
      const Bytes body = kind.encode_random(random);
      for (size_t bit = 0; bit < body.size() * 8; ++bit) {
        Bytes flipped = body;
        flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
        const absl::StatusOr<Bytes> again = kind.decode_and_encode(flipped);
        if (!again.ok()) continue;
        ASSERT_LE(again->size(), body.size() + sizeof(BlockKey) * 8) << bit;
      }
    }
  }
}

// A count above its bound, with all the bytes it announces present: only the named bound can refuse it.
template <typename Message>
absl::Status DecodeWithCount(const Bytes& before, uint32_t count, size_t record_bytes) {
  Bytes body = before;
  WireWriter(body).Put(count);
  body.resize(body.size() + count * record_bytes);
  Message message;
  return message.Decode(body);
}

TEST(Messages, CountsAboveTheirBoundAreRefusedByName) {
  const auto expect = [](const absl::Status& status, const char* what) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  expect(DecodeWithCount<IdList>({}, kPartsPerRequestMax + 1, 8),
         "id_list.ids: 65537 entries, at most 65536");
  expect(DecodeWithCount<OfferReply>({}, kPartsPerRequestMax + 1, 9), "offer_reply.slots: 65537 entries");
  expect(DecodeWithCount<PutRequest>({}, kPartsPerRequestMax + 1, 24), "put.parts: 65537 entries");
  expect(DecodeWithCount<PutReply>({}, kPartsPerRequestMax + 1, 1), "put_reply.results: 65537 entries");
  expect(DecodeWithCount<ReadRequest>(Bytes(12), kPartsPerRequestMax + 1, 4), "read.parts: 65537 entries");
  expect(DecodeWithCount<DropRequest>(Bytes(1), kBlocksPerRequestMax + 1, 32), "drop.blocks: 16385 entries");
  expect(DecodeWithCount<PlanReply>(Bytes(25), kPartsPerRequestMax + 1, 41),
         "plan_reply.parts: 65537 entries");
  expect(DecodeWithCount<ChainRequest>(Bytes(40), kCoordsPerRequestMax + 1, 4),
         "chain_request.coords: 257 entries");
  expect(DecodeWithCount<ChainRequest>(Bytes(44), kBlocksPerRequestMax + 1, 40),
         "chain_request.runs: 16385 entries");
  expect(DecodeWithCount<ChainRequest>(Bytes(48), kBlocksPerRequestMax + 1, 40),
         "chain_request.blocks: 16385 entries");
  // A count within its bound, but nothing behind it: refused before anything is made room for.
  expect(DecodeWithCount<IdList>({}, kPartsPerRequestMax, 0), "65536 entries announced, 0 bytes left");
}

TEST(Messages, ChainRequestsThatContradictThemselvesAreRefused) {
  ChainRequest request;
  request.blocks.resize(3);
  request.runs.resize(1);
  request.runs[0].count = 2;
  Bytes body;
  request.Encode(body);
  EXPECT_THAT(std::string(ChainRequest().Decode(body).message()),
              HasSubstr("runs.count: add up to 2, blocks are 3"));
  request.runs.push_back({{}, 0, 0});
  request.runs[0].count = 3;
  body.clear();
  request.Encode(body);
  EXPECT_THAT(std::string(ChainRequest().Decode(body).message()), HasSubstr("runs.count: 0"));
  request.runs = {{{}, 0, 1000}};
  request.blocks.resize(1000);
  request.coords.resize(70);
  body.clear();
  request.Encode(body);
  EXPECT_THAT(std::string(ChainRequest().Decode(body).message()), HasSubstr("kPartsPerRequestMax"));
}

TEST(Messages, LargestLegalPlanFitsAFrame) {
  PlanReply reply;
  reply.parts.resize(kPartsPerRequestMax);
  for (size_t i = 0; i < reply.parts.size(); ++i) reply.parts[i].block.fingerprint = i / 4;  // 16,384 blocks.
  Bytes body;
  reply.Encode(body);
  EXPECT_LE(body.size(), kBodyBytesMax);
  PlanReply again;
  ASSERT_TRUE(again.Decode(body).ok());
  EXPECT_EQ(again.parts[kPartsPerRequestMax - 1].block.fingerprint, kBlocksPerRequestMax - 1);
}

TEST(Messages, TextsAreCutAtTheirBound) {
  Refused refused;
  refused.message = std::string(2000, 'x');
  Bytes body;
  refused.Encode(body);
  Refused again;
  ASSERT_TRUE(again.Decode(body).ok());
  EXPECT_EQ(again.message.size(), kRefusalBytesMax);
}

TEST(Messages, VersionsOfAHelloAreReadWhateverFollows) {
  Hello hello;
  hello.version_min = 8;
  hello.version_max = 9;
  hello.key_algorithm = "later";
  Bytes body;
  hello.Encode(body);
  body.resize(body.size() + 33);  // Fields of a later version.
  Hello seen;
  EXPECT_FALSE(seen.Decode(body).ok());
  ASSERT_TRUE(seen.DecodeVersions(body).ok());
  EXPECT_EQ(seen.version_min, 8);
  EXPECT_EQ(seen.version_max, 9);
  EXPECT_EQ(seen.key_algorithm, "later");
  EXPECT_FALSE(seen.DecodeVersions(ByteView(body.data(), 5)).ok());
}

// Bodies as release 1 wrote them. A line may never change or go; a new wire version adds a file.
TEST(Messages, F61_StoredSamplesOfVersion1StillDecode) {
  std::ifstream file(CISTERN_TESTDATA "/wire_v1.txt");
  ASSERT_TRUE(file) << CISTERN_TESTDATA "/wire_v1.txt";
  std::map<std::string, Bytes> stored;
  std::string name, hex;
  while (file >> name >> hex) {
    const std::string raw = absl::HexStringToBytes(hex);
    const auto* data = reinterpret_cast<const std::byte*>(raw.data());
    stored[name] = Bytes(data, data + raw.size());
  }
  for (const MessageKind& kind : AllMessageKinds()) {
    Random random(61);
    const Bytes now = kind.encode_random(random);
    const std::string_view text(reinterpret_cast<const char*>(now.data()), now.size());
    EXPECT_EQ(stored[kind.stored], now)
        << "the wire changed:\n"
        << kind.stored << " " << absl::BytesToHexString(absl::string_view(text.data(), text.size()));
    const absl::StatusOr<Bytes> again = kind.decode_and_encode(stored[kind.stored]);
    EXPECT_TRUE(again.ok()) << kind.name << " " << again.status();
    if (!again.ok()) continue;
    EXPECT_EQ(*again, stored[kind.stored]);
  }
}

// A request of one part size ends where it always did; what follows has its place by hand here.
TEST(Messages, F61_ExtensionsFollowAllElseAndOnlyWhereTheyAreUsed) {
  ChainRequest request;
  request.coords = {{0, 0, 0}};
  request.blocks.resize(1);
  request.runs.resize(1);
  request.runs[0].count = 1;
  Bytes plain, extended;
  request.Encode(plain);
  request.coord_bytes = {7};
  request.tail_parts = 1;
  request.junction = true;
  request.Encode(extended);
  const uint8_t tail[] = {1, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 1};
  ASSERT_EQ(extended.size(), plain.size() + sizeof(tail));
  EXPECT_TRUE(std::equal(plain.begin(), plain.end(), extended.begin()));
  EXPECT_EQ(std::memcmp(extended.data() + plain.size(), tail, sizeof(tail)), 0);
  ASSERT_TRUE(request.Decode(plain).ok());
  EXPECT_TRUE(request.coord_bytes.empty());
  EXPECT_EQ(request.tail_parts, 0u);
  EXPECT_FALSE(request.junction);
  const auto refused = [&](const char* what) {
    Bytes body;
    request.Encode(body);
    EXPECT_THAT(std::string(ChainRequest().Decode(body).message()), HasSubstr(what));
  };
  request.coord_bytes = {7, 8};
  refused("coord_bytes: 2 sizes for 1 coords");
  request.coord_bytes = {7};
  request.tail_parts = 257;
  refused("tail_parts: above");
  request.tail_parts = 1;
  request.blocks.resize(2);
  request.runs[0].count = 2;
  refused("tail_parts: a tail has one block");
}

// The samples check both directions against each other; this checks them against offsets written by hand.
TEST(Messages, FieldsLieWhereTheFormatSays) {
  ChainRequest request;
  request.layout.bytes[0] = 0xaa;
  request.plan_id = 0x0102030405060708;
  request.ttl_ms = 11;
  request.deadline_ms = 12;
  request.part_bytes = 13;
  request.depth = 14;
  request.coords = {PartCoord{1, 2, 3}};
  request.runs = {RunRef{{}, 5, 1}};
  request.blocks.resize(1);
  request.blocks[0].hash.bytes[31] = 0xbb;
  request.blocks[0].fingerprint = 0xcc;
  Bytes body;
  request.Encode(body);
  ASSERT_EQ(body.size(), 40 + 8 + 4 + 40 + 4 + 40u);
  EXPECT_EQ(body[0], std::byte{0xaa});
  EXPECT_EQ(LoadLe<uint64_t>(&body[16]), 0x0102030405060708u);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(LoadLe<uint32_t>(&body[24 + 4 * i]), 11 + i);
  EXPECT_EQ(LoadLe<uint32_t>(&body[40]), 1u);
  EXPECT_EQ(LoadLe<uint32_t>(&body[44]), 0x01002003u);
  EXPECT_EQ(LoadLe<uint32_t>(&body[52 + 32]), 5u);
  EXPECT_EQ(body[96 + 31], std::byte{0xbb});
  EXPECT_EQ(LoadLe<uint64_t>(&body[96 + 32]), 0xccu);
}

}  // namespace
}  // namespace cistern
