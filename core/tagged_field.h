#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/bytes.h"

namespace cistern {

// One field of a canonical encoding: tag, length as little-endian uint32, bytes. No two field lists give the
// same text.
template <typename Tag>
void PutField(std::string& out, Tag tag, std::string_view value) {
  std::array<char, 1 + sizeof(uint32_t)> head;
  head[0] = static_cast<char>(tag);
  StoreLe<uint32_t>(&head[1], static_cast<uint32_t>(value.size()));
  out.append(head.data(), head.size());
  out.append(value);
}

template <typename Tag>
void PutField(std::string& out, Tag tag, uint32_t value) {
  std::array<char, sizeof(value)> raw;
  StoreLe(raw.data(), value);
  PutField(out, tag, std::string_view(raw.data(), raw.size()));
}

}  // namespace cistern
