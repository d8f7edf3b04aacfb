#include "transport/frame.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/crc32c.h"

namespace cistern {
namespace {

bool IsKnown(FrameType type) {
  switch (type) {
    case FrameType::kHello:
    case FrameType::kHelloAck:
    case FrameType::kRefused:
    case FrameType::kPing:
    case FrameType::kPong:
    case FrameType::kRing:
    case FrameType::kLookup:
    case FrameType::kLookupReply:
    case FrameType::kPlan:
    case FrameType::kPlanReply:
    case FrameType::kRead:
    case FrameType::kReadReply:
    case FrameType::kRenew:
    case FrameType::kRenewReply:
    case FrameType::kRelease:
    case FrameType::kOffer:
    case FrameType::kOfferReply:
    case FrameType::kPut:
    case FrameType::kPutReply:
    case FrameType::kAbort:
    case FrameType::kNote:
    case FrameType::kAgree:
    case FrameType::kAgreeReply:
    case FrameType::kStats:
    case FrameType::kStatsReply:
    case FrameType::kDrop:
    case FrameType::kDropReply:
    case FrameType::kQuota:
    case FrameType::kQuotaReply:
    case FrameType::kError:
      return true;
  }
  return false;
}

bool MayCarryPayload(FrameType type) {
  return type == FrameType::kPlanReply || type == FrameType::kReadReply || type == FrameType::kPut;
}

// The handshake's frames are read whatever their version, so that a refusal can name both sides' (F61).
bool IsOfHandshake(FrameType type) {
  return type == FrameType::kHello || type == FrameType::kHelloAck || type == FrameType::kRefused;
}

absl::Status CheckLimits(const FrameHeader& header) {
  if (!IsKnown(header.type)) {
    return absl::InvalidArgumentError(absl::StrCat("frame type ", static_cast<int>(header.type), " unknown"));
  }
  if (!IsOfHandshake(header.type) && (header.version < kWireVersionMin || header.version > kWireVersionMax)) {
    return absl::InvalidArgumentError(absl::StrCat("frame version ", header.version, ", known are ",
                                                   kWireVersionMin, " to ", kWireVersionMax));
  }
  if (header.pad_bytes >= kFrameAlignBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame pad_bytes ", header.pad_bytes, ", at most ", kFrameAlignBytes - 1));
  }
  if (header.body_bytes > kBodyBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame body_bytes ", header.body_bytes, ", at most ", kBodyBytesMax));
  }
  if (header.payload_bytes > kPayloadBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame payload_bytes ", header.payload_bytes, ", at most ", kPayloadBytesMax));
  }
  if (header.payload_bytes > 0 && !MayCarryPayload(header.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame type ", static_cast<int>(header.type), " carries no payload"));
  }
  return absl::OkStatus();
}

}  // namespace

void EncodeFrameHeader(const FrameHeader& header, std::byte* out) {
  StoreLe<uint32_t>(out, kFrameMagic);
  StoreLe<uint8_t>(out + 4, header.version);
  StoreLe<uint8_t>(out + 5, static_cast<uint8_t>(header.type));
  StoreLe<uint16_t>(out + 6, header.flags);
  StoreLe<uint64_t>(out + 8, header.request_id);
  StoreLe<uint32_t>(out + 16, header.body_bytes);
  StoreLe<uint32_t>(out + 20, header.pad_bytes);
  StoreLe<uint64_t>(out + 24, header.payload_bytes);
  StoreLe<uint32_t>(out + 32, header.body_crc);
  StoreLe<uint32_t>(out + 36, Crc32c(out, 36));
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::Span<const std::byte> bytes) {
  if (bytes.size() < kFrameHeaderBytes) return absl::InvalidArgumentError("frame header cut off");
  const std::byte* in = bytes.data();
  if (LoadLe<uint32_t>(in) != kFrameMagic) return absl::InvalidArgumentError("frame magic wrong");
  if (LoadLe<uint32_t>(in + 36) != Crc32c(in, 36)) return absl::DataLossError("frame header_crc wrong");
  FrameHeader header;
  header.version = LoadLe<uint8_t>(in + 4);
  header.type = static_cast<FrameType>(LoadLe<uint8_t>(in + 5));
  header.flags = LoadLe<uint16_t>(in + 6);
  header.request_id = LoadLe<uint64_t>(in + 8);
  header.body_bytes = LoadLe<uint32_t>(in + 16);
  header.pad_bytes = LoadLe<uint32_t>(in + 20);
  header.payload_bytes = LoadLe<uint64_t>(in + 24);
  header.body_crc = LoadLe<uint32_t>(in + 32);
  if (absl::Status status = CheckLimits(header); !status.ok()) return status;
  return header;
}

}  // namespace cistern
