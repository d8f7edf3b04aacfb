#include "core/hex.h"

namespace cistern {
namespace {

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool BytesFromHex(std::string_view text, uint8_t* out, size_t bytes) {
  if (text.size() != 2 * bytes) return false;
  for (const char c : text) {
    if (Digit(c) < 0) return false;
  }
  for (size_t i = 0; i < bytes; ++i)
    out[i] = static_cast<uint8_t>(Digit(text[2 * i]) << 4 | Digit(text[2 * i + 1]));
  return true;
}

}  // namespace cistern
