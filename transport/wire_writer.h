#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/bytes.h"
#include "core/ids.h"
#include "transport/messages.h"

namespace cistern {

// Records that go over the wire as they lie in memory: without padding, so that thousands of them are one
// memcpy.
static_assert(sizeof(BlockKey) == 40 && std::is_trivially_copyable_v<BlockKey>);
static_assert(offsetof(BlockKey, hash) == 0 && offsetof(BlockKey, fingerprint) == 32);
static_assert(sizeof(RunRef) == 40 && std::is_trivially_copyable_v<RunRef>);
static_assert(offsetof(RunRef, run_key) == 0 && offsetof(RunRef, first_index) == 32 &&
              offsetof(RunRef, count) == 36);
static_assert(sizeof(PutRequest::Part) == 24 && std::is_trivially_copyable_v<PutRequest::Part>);
static_assert(offsetof(PutRequest::Part, window_offset) == 8 && offsetof(PutRequest::Part, length) == 16 &&
              offsetof(PutRequest::Part, crc) == 20);
static_assert(sizeof(BlockHash) == 32 && std::is_trivially_copyable_v<BlockHash>);
static_assert(sizeof(PartResult) == 1);

class WireWriter;
void PutRetention(WireWriter& w, const Retention& retention);

// Appends little-endian fields to a body. Lives for one Encode; one thread.
class WireWriter {
 public:
  explicit WireWriter(Bytes& out) : out_(out) {}

  template <typename T>
  void Put(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    PutRaw(&value, sizeof(T));
  }
  void PutBool(bool value) { Put<uint8_t>(value ? 1 : 0); }
  void PutRaw(const void* from, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(from);
    out_.insert(out_.end(), begin, begin + bytes);
  }
  template <size_t N, typename Tag>
  void PutFixed(const FixedBytes<N, Tag>& value) {
    PutRaw(value.bytes.data(), N);
  }
  // uint16 length, then the bytes; what is above `bytes_max` is cut off.
  void PutString(std::string_view text, size_t bytes_max) {
    text = text.substr(0, std::min(text.size(), bytes_max));
    Put(static_cast<uint16_t>(text.size()));
    PutRaw(text.data(), text.size());
  }
  // uint32 count, then the records as they lie in memory.
  template <typename T>
  void PutRecords(const std::vector<T>& records) {
    static_assert(std::is_trivially_copyable_v<T>);
    Put(static_cast<uint32_t>(records.size()));
    PutRaw(records.data(), records.size() * sizeof(T));
  }
  // Room for `bytes` more, and the place to write them.
  std::byte* Grow(size_t bytes) {
    const size_t at = out_.size();
    out_.resize(at + bytes);
    return out_.data() + at;
  }
  void Reserve(size_t bytes) { out_.reserve(out_.size() + bytes); }

 private:
  Bytes& out_;
};

}  // namespace cistern
