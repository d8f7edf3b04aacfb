#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cistern/cistern_c.h"
#include "cistern/client.h"

// What the C ABI's handles are, and the turns between its structs and the C++ facade's. Thread: any; nothing
// here is shared but the handles themselves.
struct cistern_client {
  std::unique_ptr<cistern::Client> client;
};
struct cistern_chain {
  cistern::Chain chain;
};
struct cistern_hit {
  cistern::Hit hit;
};

namespace cistern::c_abi {

// Remembers the message of a call for cistern_error_message and gives back its code.
cistern_code Remember(const Status& status) noexcept;
cistern_code Remember(cistern_code code, const char* message) noexcept;

// Runs `call`, which gives a cistern_code; what it throws (memory that ran out) becomes a code.
template <typename Call>
cistern_code Guarded(Call&& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Remember(CISTERN_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception& e) {
    return Remember(CISTERN_INTERNAL, e.what());
  }
}

// Takes a struct that another version of the header may have made: shorter ones are filled with zeros, longer
// ones are refused unless the rest is zero. `in` null: all zero.
template <typename T>
Status Take(const char* name, const T* in, T& out) {
  out = T{};
  if (in == nullptr) return {};
  size_t size = 0;
  std::memcpy(&size, in, sizeof(size));
  if (size < sizeof(size)) return {Code::kInvalidArgument, std::string(name) + ".struct_size: not set"};
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return {
        Code::kInvalidArgument,
        std::string(name) + ": has a field that this library does not know; a newer libcistern is needed"};
  }
  std::memcpy(&out, in, size < sizeof(T) ? size : sizeof(T));
  return {};
}

Status Take(const cistern_options* given, ClientOptions& out);  // Null: the defaults.
Status Take(const cistern_call* in, CallOptions& out);

inline constexpr size_t kPiecesPerPageMax = size_t{1} << 20;
inline constexpr size_t kResultsUnboundMax = size_t{1} << 16;  // Filled when the chain or hit is not given.

// A call with pages: `handle` is the chain or hit, of so many blocks.
struct PagesOf {
  const void* client = nullptr;
  const void* handle = nullptr;
  uint64_t blocks = 0;
  uint32_t first = 0;
  const cistern_page* pages = nullptr;
  size_t count = 0;
};
inline PagesOf Pages(const cistern_client* client, const cistern_chain* chain, uint32_t first,
                     const cistern_page* pages, size_t count) {
  return {client, chain, chain == nullptr ? 0 : chain->chain.blocks(), first, pages, count};
}
inline PagesOf Pages(const cistern_client* client, const cistern_hit* hit, uint32_t first,
                     const cistern_page* pages, size_t count) {
  return {client, hit, hit == nullptr ? 0 : hit->hit.blocks(), first, pages, count};
}
// Before pages are looked at their number is: an array is as long as its caller says.
Status CheckPages(const PagesOf& given);

// Pages of the facade out of pages of C; the pieces' memory stays the caller's.
template <typename P, typename PieceType>
std::vector<P> TakePages(const cistern_page* pages, size_t count) {
  std::vector<P> out(count);
  for (size_t i = 0; i < count; ++i) {
    out[i].pieces.reserve(pages[i].pieces_count);
    for (size_t k = 0; k < pages[i].pieces_count; ++k)
      out[i].pieces.push_back(PieceType{pages[i].pieces[k].data, pages[i].pieces[k].bytes});
  }
  return out;
}
inline std::vector<Page> TakeTargets(const cistern_page* pages, size_t count) {
  return TakePages<Page, Piece>(pages, count);
}
inline std::vector<ConstPage> TakeSources(const cistern_page* pages, size_t count) {
  return TakePages<ConstPage, ConstPiece>(pages, count);
}

static_assert(sizeof(PageResult) == sizeof(cistern_page_result));
inline const cistern_page_result* Results(const std::vector<PageResult>& pages) {
  return reinterpret_cast<const cistern_page_result*>(pages.data());
}

}  // namespace cistern::c_abi
