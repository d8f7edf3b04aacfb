// The first bytes any stranger can send: a frame header.
#include <cstring>

#include "core/crc32c.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/frame.h"

namespace cistern {

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  for (const FrameType type : {FrameType::kHello, FrameType::kPlan, FrameType::kPut, FrameType::kError}) {
    FrameHeader header;
    header.type = type;
    header.request_id = 7;
    header.body_bytes = 100;
    header.payload_bytes = type == FrameType::kPut ? 4096 : 0;
    std::string bytes(kFrameHeaderBytes, '\0');
    EncodeFrameHeader(header, reinterpret_cast<std::byte*>(bytes.data()));
    add("frame_" + std::to_string(static_cast<int>(type)), bytes);
  }
}

namespace {

void Check(absl::Span<const std::byte> bytes) {
  const absl::StatusOr<FrameHeader> header = DecodeFrameHeader(bytes);
  if (!header.ok()) {
    FUZZ_REQUIRE(!header.status().message().empty());
    return;
  }
  FUZZ_REQUIRE(header->body_bytes <= kBodyBytesMax);
  FUZZ_REQUIRE(header->payload_bytes <= kPayloadBytesMax);
  // Handshakes are read whatever their version, so that a refusal can name both sides' (F61).
  const bool handshake = header->type == FrameType::kHello || header->type == FrameType::kHelloAck ||
                         header->type == FrameType::kRefused;
  FUZZ_REQUIRE(handshake || (header->version >= kWireVersionMin && header->version <= kWireVersionMax));
  std::byte again[kFrameHeaderBytes];
  EncodeFrameHeader(*header, again);
  FUZZ_REQUIRE(std::memcmp(again, bytes.data(), kFrameHeaderBytes) == 0);
}

}  // namespace
}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  Check({bytes, size});
  if (size < kFrameHeaderBytes) return 0;
  // Once more with a checksum that fits, or nothing behind it would ever be reached.
  std::byte fixed[kFrameHeaderBytes];
  std::memcpy(fixed, bytes, kFrameHeaderBytes);
  StoreLe<uint32_t>(fixed + 36, Crc32c(fixed, 36));
  Check({fixed, kFrameHeaderBytes});
  return 0;
}
