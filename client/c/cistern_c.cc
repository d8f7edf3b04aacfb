#include "cistern/cistern_c.h"

#include <algorithm>

#include "client/c/handles.h"

// The C ABI: handles, chains and the calls that wait.
namespace cistern::c_abi {
namespace {

constexpr size_t kMessageBytesMax = 512;
thread_local char t_message[kMessageBytesMax];

std::string Text(const char* text, const char* fallback) { return text == nullptr ? fallback : text; }

std::chrono::milliseconds Ms(uint32_t given, std::chrono::milliseconds fallback) {
  return given == 0 ? fallback : std::chrono::milliseconds(given);
}

Layout ToLayout(const cistern_layout& in) {
  Layout out;
  out.model = Text(in.model, "");
  out.dtype = Text(in.dtype, out.dtype.c_str());
  out.geometry = Text(in.geometry, "");
  if (in.compute_digest != nullptr)
    std::copy_n(in.compute_digest, out.compute_digest.size(), out.compute_digest.begin());
  out.block_tokens = in.block_tokens;
  out.part_bytes = in.part_bytes;
  if (in.slices != 0) out.slices = in.slices;
  if (in.spans != 0) out.spans = in.spans;
  return out;
}

// Extras are an array of structs that say their own size: all have the first one's.
Status ToExtras(const cistern_extra* extras, size_t count, std::vector<ChainExtra>& out) {
  if (count == 0) return {};
  if (extras == nullptr) return {Code::kInvalidArgument, "extras: null"};
  const size_t step = extras[0].struct_size;
  const auto* at = reinterpret_cast<const unsigned char*>(extras);
  for (size_t i = 0; i < count; ++i, at += step) {
    cistern_extra extra;
    const auto* in = reinterpret_cast<const cistern_extra*>(at);
    if (Status status = Take("extras", in, extra); !status.ok()) return status;
    if (extra.struct_size != step) return {Code::kInvalidArgument, "extras: structs of different sizes"};
    if (extra.value == nullptr && extra.value_bytes != 0)
      return {Code::kInvalidArgument, "extras.value: null"};
    ChainExtra to;
    to.kind = static_cast<ChainExtra::Kind>(std::min<uint32_t>(extra.kind, UINT8_MAX));
    to.block = extra.block;
    to.offset = extra.offset;
    to.value.assign(static_cast<const char*>(extra.value), extra.value_bytes);
    out.push_back(std::move(to));
  }
  return {};
}

Status CheckTokens(const uint32_t* tokens, size_t count) {
  if (tokens == nullptr && count != 0) return {Code::kInvalidArgument, "tokens: null"};
  return {};
}

cistern_code GiveChain(Result<Chain> made, cistern_chain** out) {
  if (!made.ok()) return Remember(made.status());
  *out = new cistern_chain{std::move(made.value())};
  return Remember({});
}

// Every report begins as a refused call's: no page is OK that has not been asked for.
Status BeginReport(const PagesOf& given, cistern_report* out) {
  if (out == nullptr) return {};
  cistern_report report;
  if (Status status = Take("report", static_cast<const cistern_report*>(out), report); !status.ok())
    return status;
  report.bytes = 0;
  report.hit_blocks = report.ok_pages = 0;
  const size_t known = given.handle == nullptr ? kResultsUnboundMax : given.blocks;
  if (report.results != nullptr)
    std::memset(report.results, CISTERN_PAGE_INVALID, std::min<size_t>(given.count, known));
  std::memcpy(out, &report, std::min(report.struct_size, sizeof(report)));
  return {};
}

// Copies a report out, as far as the caller's struct goes.
template <typename Report>
cistern_code GiveReport(const Report& from, uint32_t hit_blocks, cistern_report* out) {
  if (out != nullptr) {
    cistern_report report;
    if (Status status = Take("report", static_cast<const cistern_report*>(out), report); !status.ok())
      return Remember(status);
    report.bytes = from.bytes;
    report.hit_blocks = hit_blocks;
    report.ok_pages =
        static_cast<uint32_t>(std::count_if(from.pages.begin(), from.pages.end(), [](PageResult r) {
          return r == PageResult::kOk || r == PageResult::kExists;
        }));
    if (report.results != nullptr && !from.pages.empty())
      std::memcpy(report.results, Results(from.pages), from.pages.size());
    std::memcpy(out, &report, std::min(report.struct_size, sizeof(report)));
  }
  return Remember(from.status);
}

}  // namespace

Status CheckPages(const PagesOf& given) {
  if (given.client == nullptr) return {Code::kInvalidArgument, "client: null"};
  if (given.handle == nullptr) return {Code::kInvalidArgument, "chain or hit: null"};
  if (given.pages == nullptr && given.count != 0) return {Code::kInvalidArgument, "pages: null"};
  if (given.count > given.blocks || given.first > given.blocks - given.count) {
    return {Code::kInvalidArgument, "pages_count: " + std::to_string(given.count) + " from block " +
                                        std::to_string(given.first) + ", the chain or hit has " +
                                        std::to_string(given.blocks)};
  }
  for (size_t i = 0; i < given.count; ++i) {
    const cistern_page& page = given.pages[i];
    if (page.pieces == nullptr && page.pieces_count != 0)
      return {Code::kInvalidArgument, "pages[" + std::to_string(i) + "].pieces: null"};
    if (page.pieces_count > kPiecesPerPageMax) {
      return {Code::kInvalidArgument,
              "pages[" + std::to_string(i) + "].pieces_count: above " + std::to_string(kPiecesPerPageMax)};
    }
  }
  return {};
}

cistern_code Remember(cistern_code code, const char* message) noexcept {
  std::strncpy(t_message, message, kMessageBytesMax - 1);
  return code;
}
cistern_code Remember(const Status& status) noexcept {
  return Remember(static_cast<cistern_code>(status.code()), status.message().c_str());
}

Status Take(const cistern_options* given, ClientOptions& out) {
  cistern_options in;
  if (Status status = Take("options", given, in); !status.ok()) return status;
  out.router = Text(in.router, out.router.c_str());
  out.transport = Text(in.transport, out.transport.c_str());
  out.tenant = Text(in.tenant, "");
  if (in.window_bytes != 0) out.window_bytes = in.window_bytes;
  out.default_deadline = Ms(in.default_deadline_ms, out.default_deadline);
  out.connect_deadline = Ms(in.connect_deadline_ms, out.connect_deadline);
  out.lease_ttl = Ms(in.lease_ttl_ms, out.lease_ttl);
  if (in.breaker_failures != 0) out.breaker_failures = in.breaker_failures;
  out.breaker_retry = Ms(in.breaker_retry_ms, out.breaker_retry);
  out.negative_ttl = Ms(in.negative_ttl_ms, out.negative_ttl);
  out.spin = in.spin != 0;
  out.wait_for_router = in.fail_fast == 0;
  out.host_share = Text(in.host_share, "");
  if (in.host_share_bytes != 0) out.host_share_bytes = in.host_share_bytes;
  return {};
}
Status Take(const cistern_call* in, CallOptions& out) {
  cistern_call call;
  if (Status status = Take("call", in, call); !status.ok()) return status;
  out.deadline = std::chrono::milliseconds(call.deadline_ms);
  out.slice_first = call.slice_first;
  out.slice_count = call.slice_count;
  out.span_first = call.span_first;
  out.span_count = call.span_count;
  out.host_shared = call.host_shared != 0;
  return {};
}

namespace {
// The three calls with pages differ in the facade's call and in the pages' constness alone.
template <typename Call>
cistern_code PagesCall(const PagesOf& given, const cistern_call* call, cistern_report* report, Call&& run) {
  return Guarded([&] {
    if (Status status = BeginReport(given, report); !status.ok()) return Remember(status);
    if (Status status = CheckPages(given); !status.ok()) return Remember(status);
    CallOptions options;
    if (Status status = Take(call, options); !status.ok()) return Remember(status);
    return run(options);
  });
}
}  // namespace
}  // namespace cistern::c_abi

namespace c_abi = cistern::c_abi;
using c_abi::Guarded;
using c_abi::Remember;
using cistern::Status;

extern "C" {

uint32_t cistern_abi_version(void) { return CISTERN_ABI_VERSION; }
const char* cistern_error_message(void) { return c_abi::t_message; }
const char* cistern_page_result_name(cistern_page_result result) {
  if (result > CISTERN_PAGE_BREAKER_OPEN) return "unknown";
  return cistern::PageResultName(static_cast<cistern::PageResult>(result));
}

cistern_code cistern_connect(const cistern_options* options, cistern_client** out) {
  return Guarded([&] {
    if (out == nullptr) return Remember(CISTERN_INVALID_ARGUMENT, "out: null");
    *out = nullptr;
    cistern::ClientOptions given;
    if (Status status = c_abi::Take(options, given); !status.ok()) return Remember(status);
    auto connected = cistern::Client::Connect(given);
    if (!connected.ok()) return Remember(connected.status());
    *out = new cistern_client{std::move(connected.value())};
    return Remember({});
  });
}
void cistern_close(cistern_client* client) { delete client; }

void* cistern_alloc_buffer(cistern_client* client, size_t bytes) {
  void* buffer = nullptr;
  if (client == nullptr) return buffer;
  (void)Guarded([&]() -> cistern_code {
    buffer = client->client->AllocateBuffer(bytes);
    return CISTERN_OK;
  });
  return buffer;
}
void cistern_free_buffer(cistern_client* client, void* buffer) {
  if (client == nullptr || buffer == nullptr) return;
  (void)Guarded([&]() -> cistern_code {
    client->client->FreeBuffer(buffer);
    return CISTERN_OK;
  });
}
void cistern_counters(const cistern_client* client, void (*each)(void*, const char*, uint64_t), void* user) {
  if (client == nullptr || each == nullptr) return;
  (void)Guarded([&]() -> cistern_code {
    for (const auto& [name, value] : client->client->Counters()) each(user, name.c_str(), value);
    return CISTERN_OK;
  });
}

cistern_code cistern_chain_make(cistern_client* client, const cistern_layout* layout, const uint32_t* tokens,
                                size_t tokens_count, const cistern_extra* extras, size_t extras_count,
                                cistern_chain** out) {
  return Guarded([&] {
    if (client == nullptr || layout == nullptr || out == nullptr)
      return Remember(CISTERN_INVALID_ARGUMENT, "client, layout or out: null");
    *out = nullptr;
    cistern_layout given;
    if (Status status = c_abi::Take("layout", layout, given); !status.ok()) return Remember(status);
    if (Status status = c_abi::CheckTokens(tokens, tokens_count); !status.ok()) return Remember(status);
    std::vector<cistern::ChainExtra> more;
    if (Status status = c_abi::ToExtras(extras, extras_count, more); !status.ok()) return Remember(status);
    return c_abi::GiveChain(client->client->MakeChain(c_abi::ToLayout(given), {tokens, tokens_count}, more),
                            out);
  });
}
cistern_code cistern_chain_extend(cistern_client* client, const cistern_chain* prefix,
                                  const uint32_t* more_tokens, size_t tokens_count,
                                  const cistern_extra* extras, size_t extras_count, cistern_chain** out) {
  return Guarded([&] {
    if (client == nullptr || prefix == nullptr || out == nullptr)
      return Remember(CISTERN_INVALID_ARGUMENT, "client, prefix or out: null");
    *out = nullptr;
    if (Status status = c_abi::CheckTokens(more_tokens, tokens_count); !status.ok()) return Remember(status);
    std::vector<cistern::ChainExtra> more;
    if (Status status = c_abi::ToExtras(extras, extras_count, more); !status.ok()) return Remember(status);
    return c_abi::GiveChain(client->client->ExtendChain(prefix->chain, {more_tokens, tokens_count}, more),
                            out);
  });
}
void cistern_chain_free(cistern_chain* chain) { delete chain; }
uint32_t cistern_chain_blocks(const cistern_chain* chain) {
  return chain == nullptr ? 0 : chain->chain.blocks();
}
cistern_code cistern_chain_key(const cistern_chain* chain, uint32_t block, uint8_t hash[32],
                               uint64_t* fingerprint) {
  if (chain == nullptr || block >= chain->chain.blocks())
    return Remember(CISTERN_INVALID_ARGUMENT, "block: not in the chain");
  const auto bytes = chain->chain.hash(block);
  if (hash != nullptr) std::memcpy(hash, bytes.data(), bytes.size());
  if (fingerprint != nullptr) *fingerprint = chain->chain.fingerprint(block);
  return Remember({});
}

cistern_code cistern_lookup(cistern_client* client, const cistern_chain* chain, const cistern_call* call,
                            uint32_t* blocks) {
  return c_abi::PagesCall({.client = client, .handle = chain}, call, nullptr,
                          [&](const cistern::CallOptions& options) {
                            auto found = client->client->LookupWait(chain->chain, options);
                            if (blocks != nullptr) *blocks = found.ok() ? found.value() : 0;
                            return Remember(found.status());
                          });
}
cistern_code cistern_plan(cistern_client* client, const cistern_chain* chain, const cistern_call* call,
                          cistern_hit** out) {
  if (out == nullptr) return Remember(CISTERN_INVALID_ARGUMENT, "out: null");
  *out = nullptr;
  return c_abi::PagesCall({.client = client, .handle = chain}, call, nullptr,
                          [&](const cistern::CallOptions& options) {
                            auto hit = client->client->PlanWait(chain->chain, options);
                            if (!hit.ok()) return Remember(hit.status());
                            *out = new cistern_hit{std::move(hit.value())};
                            return Remember({});
                          });
}
cistern_code cistern_load(cistern_client* client, const cistern_hit* hit, uint32_t first,
                          const cistern_page* pages, size_t pages_count, const cistern_call* call,
                          cistern_report* report) {
  return c_abi::PagesCall(c_abi::Pages(client, hit, first, pages, pages_count), call, report,
                          [&](const cistern::CallOptions& options) {
                            const auto done = client->client->LoadWait(
                                hit->hit, first, c_abi::TakeTargets(pages, pages_count), options);
                            return c_abi::GiveReport(done, done.hit_blocks, report);
                          });
}
cistern_code cistern_fetch(cistern_client* client, const cistern_chain* chain, const cistern_page* pages,
                           size_t pages_count, const cistern_call* call, cistern_report* report) {
  return c_abi::PagesCall(c_abi::Pages(client, chain, 0, pages, pages_count), call, report,
                          [&](const cistern::CallOptions& options) {
                            const auto done = client->client->FetchWait(
                                chain->chain, c_abi::TakeTargets(pages, pages_count), options);
                            return c_abi::GiveReport(done, done.hit_blocks, report);
                          });
}
cistern_code cistern_store(cistern_client* client, const cistern_chain* chain, uint32_t first,
                           const cistern_page* pages, size_t pages_count, const cistern_call* call,
                           cistern_report* report) {
  return c_abi::PagesCall(c_abi::Pages(client, chain, first, pages, pages_count), call, report,
                          [&](const cistern::CallOptions& options) {
                            const auto done = client->client->StoreWait(
                                chain->chain, first, c_abi::TakeSources(pages, pages_count), options);
                            return c_abi::GiveReport(done, 0, report);
                          });
}

uint32_t cistern_hit_blocks(const cistern_hit* hit) { return hit == nullptr ? 0 : hit->hit.blocks(); }
cistern_page_result cistern_hit_stopped_by(const cistern_hit* hit) {
  return hit == nullptr ? cistern_page_result{CISTERN_PAGE_MISS}
                        : static_cast<cistern_page_result>(hit->hit.stopped_by());
}
void cistern_hit_free(cistern_hit* hit) { delete hit; }

}  // extern "C"
