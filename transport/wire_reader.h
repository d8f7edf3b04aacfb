#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/bytes.h"
#include "core/ids.h"
#include "core/part.h"
#include "core/retention.h"
#include "transport/messages.h"

namespace cistern {

// Takes little-endian fields off a body that a peer sent. The first thing that is wrong is kept with the
// field's name; all later reads then give zeros, so a decoder reads straight on and asks Finish once. Lives
// for one Decode; one thread.
class WireReader {
 public:
  WireReader(const char* message, ByteView body) : message_(message), at_(body.data()), left_(body.size()) {}

  bool ok() const { return ok_; }
  size_t left() const { return left_; }

  template <typename T>
  T Get(const char* field) {
    static_assert(std::is_integral_v<T>);
    T value{};
    GetRaw(field, &value, sizeof(T));
    return value;
  }
  bool GetRaw(const char* field, void* to, size_t bytes) {
    if (!ok_ || left_ < bytes) {
      Fail(field, "cut off");
      return false;
    }
    if (bytes > 0) std::memcpy(to, at_, bytes);
    at_ += bytes;
    left_ -= bytes;
    return true;
  }
  bool GetBool(const char* field) {
    const auto value = Get<uint8_t>(field);
    if (value > 1) Fail(field, "neither 0 nor 1");
    return value == 1;
  }
  template <size_t N, typename Tag>
  void GetFixed(const char* field, FixedBytes<N, Tag>& to) {
    GetRaw(field, to.bytes.data(), N);
  }
  PartResult GetResult(const char* field) {
    const auto value = Get<uint8_t>(field);
    if (value > kPartResultMax) Fail(field, "no such result");
    return static_cast<PartResult>(value);
  }
  void GetString(const char* field, size_t bytes_max, std::string& to) {
    const auto bytes = Get<uint16_t>(field);
    if (!ok_) return;
    if (bytes > bytes_max) return Fail(field, absl::StrCat(bytes, " bytes, at most ", bytes_max));
    if (bytes > left_) return Fail(field, "cut off");
    to.assign(reinterpret_cast<const char*>(at_), bytes);
    at_ += bytes;
    left_ -= bytes;
  }
  // A count of records: within its bound, and the rest of the body can hold as many. 0 when not.
  uint32_t GetCount(const char* field, uint32_t count_max, size_t record_bytes_min) {
    const auto count = Get<uint32_t>(field);
    if (!ok_) return 0;
    if (count > count_max) {
      Fail(field, absl::StrCat(count, " entries, at most ", count_max));
      return 0;
    }
    if (count > left_ / record_bytes_min) {
      Fail(field, absl::StrCat(count, " entries announced, ", left_, " bytes left"));
      return 0;
    }
    return count;
  }
  // Counterpart of WireWriter::PutRecords.
  template <typename T>
  void GetRecords(const char* field, uint32_t count_max, std::vector<T>& to) {
    static_assert(std::is_trivially_copyable_v<T>);
    const uint32_t count = GetCount(field, count_max, sizeof(T));
    to.resize(count);
    GetRaw(field, to.data(), count * sizeof(T));
  }
  void Fail(const char* field, std::string_view what) {
    if (!ok_) return;
    ok_ = false;
    left_ = 0;
    error_ = absl::StrCat(message_, ".", field, ": ", absl::string_view(what.data(), what.size()));
  }
  // InvalidArgument when a field was wrong or bytes are left over.
  absl::Status Finish() {
    if (ok_ && left_ > 0) Fail("end", absl::StrCat(left_, " trailing bytes"));
    return ok_ ? absl::OkStatus() : absl::InvalidArgumentError(error_);
  }

 private:
  const char* message_;
  const std::byte* at_;
  size_t left_;
  bool ok_ = true;
  std::string error_;
};

void GetRetention(WireReader& r, Retention& retention);

}  // namespace cistern
