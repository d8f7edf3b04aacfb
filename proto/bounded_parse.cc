#include "proto/bounded_parse.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <limits>

namespace cistern {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr int kVarintBytesMax = 10;

enum WireType : uint32_t { kVarint, kFixed64, kLengthDelimited, kGroupBegin, kGroupEnd, kFixed32 };

// Walks the fields of one message's bytes and compares lengths; values are protobuf's business.
class LengthWalk {
 public:
  explicit LengthWalk(std::string_view bytes) : at_(bytes.data()) {}

  // The fields from here to `end`, or to the end of the group of that number. `type` is null where the schema
  // knows nothing.
  bool Fields(const Descriptor* type, const char* end, uint64_t group, int depth) {
    if (depth == 0) return false;
    while (at_ < end) {
      uint64_t tag = 0;
      if (!Varint(end, tag)) return false;
      const uint64_t number = tag >> 3;
      const uint32_t wire_type = tag & 7;
      if (wire_type == kGroupEnd) return group != 0 && number == group;
      if (!Value(Inner(type, number), wire_type, number, end, depth)) return false;
    }
    return group == 0;
  }

 private:
  // The message that a field holds; null when it holds none or is unknown.
  static const Descriptor* Inner(const Descriptor* type, uint64_t number) {
    if (type == nullptr || number > std::numeric_limits<int>::max()) return nullptr;
    const FieldDescriptor* field = type->FindFieldByNumber(static_cast<int>(number));
    return field == nullptr ? nullptr : field->message_type();
  }

  bool Value(const Descriptor* inner, uint32_t wire_type, uint64_t number, const char* end, int depth) {
    uint64_t value = 0;
    switch (wire_type) {
      case kVarint:
        return Varint(end, value);
      case kFixed64:
        return Skip(end, 8);
      case kFixed32:
        return Skip(end, 4);
      case kGroupBegin:
        return number != 0 && Fields(inner, end, number, depth - 1);
      case kLengthDelimited:
        if (!Varint(end, value) || value > static_cast<uint64_t>(end - at_)) return false;
        return inner == nullptr ? Skip(end, value) : Fields(inner, at_ + value, 0, depth - 1);
      default:
        return false;
    }
  }

  bool Varint(const char* end, uint64_t& out) {
    out = 0;
    for (int i = 0; i < kVarintBytesMax && at_ < end; ++i) {
      const auto byte = static_cast<uint8_t>(*at_++);
      out |= uint64_t{byte & 0x7fu} << (7 * i);
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool Skip(const char* end, uint64_t bytes) {
    if (bytes > static_cast<uint64_t>(end - at_)) return false;
    at_ += bytes;
    return true;
  }

  const char* at_;
};

}  // namespace

bool ParseBounded(google::protobuf::Message& out, std::string_view bytes) {
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) return false;
  LengthWalk walk(bytes);
  return walk.Fields(out.GetDescriptor(), bytes.data() + bytes.size(), 0, kMessageDepthMax) &&
         out.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace cistern
