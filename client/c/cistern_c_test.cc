#include "cistern/cistern_c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "client/c/handles.h"

extern "C" uint32_t cistern_abi_checked(void);

namespace cistern {
namespace {

TEST(CAbi, VersionIsTheHeaders) { EXPECT_EQ(cistern_abi_version(), cistern_abi_checked()); }

TEST(CAbi, NumbersAreTheFacades) {
  EXPECT_EQ(static_cast<int>(Code::kUnauthenticated), CISTERN_UNAUTHENTICATED);
  EXPECT_EQ(static_cast<int>(Code::kUnavailable), CISTERN_UNAVAILABLE);
  EXPECT_EQ(static_cast<int>(PageResult::kBreakerOpen), CISTERN_PAGE_BREAKER_OPEN);
  EXPECT_EQ(static_cast<int>(PageResult::kExists), CISTERN_PAGE_EXISTS);
  EXPECT_STREQ(cistern_page_result_name(CISTERN_PAGE_CORRUPT), PageResultName(PageResult::kCorrupt));
  EXPECT_STREQ(cistern_page_result_name(200), "unknown");
  EXPECT_EQ(static_cast<int>(ChainExtra::Kind::kSalt), CISTERN_EXTRA_SALT);
}

TEST(CAbi, RefusesNullByName) {
  cistern_client* client = nullptr;
  EXPECT_EQ(cistern_connect(nullptr, nullptr), CISTERN_INVALID_ARGUMENT);
  EXPECT_STREQ(cistern_error_message(), "out: null");
  EXPECT_EQ(cistern_chain_make(client, nullptr, nullptr, 0, nullptr, 0, nullptr), CISTERN_INVALID_ARGUMENT);
  uint32_t blocks = 7;
  EXPECT_EQ(cistern_lookup(client, nullptr, nullptr, &blocks), CISTERN_INVALID_ARGUMENT);
  EXPECT_STREQ(cistern_error_message(), "client: null");
  EXPECT_EQ(cistern_store(client, nullptr, 0, nullptr, 0, nullptr, nullptr), CISTERN_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_chain_key(nullptr, 0, nullptr, nullptr), CISTERN_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_alloc_buffer(nullptr, 64), nullptr);
  cistern_free_buffer(nullptr, nullptr);
  cistern_chain_free(nullptr);
  cistern_hit_free(nullptr);
  cistern_close(nullptr);
  cistern_cancel(nullptr, 1);
  EXPECT_EQ(cistern_poll(nullptr), 0);
  EXPECT_EQ(cistern_event_fd(nullptr), -1);
}

TEST(CAbi, RefusesOptionsByName) {
  cistern_client* client = nullptr;
  cistern_options options{};
  EXPECT_EQ(cistern_connect(&options, &client), CISTERN_INVALID_ARGUMENT);
  EXPECT_STREQ(cistern_error_message(), "options.struct_size: not set");
  options.struct_size = sizeof(options);
  options.transport = "pigeon";
  EXPECT_EQ(cistern_connect(&options, &client), CISTERN_INVALID_ARGUMENT);
  EXPECT_NE(std::string(cistern_error_message()).find("pigeon"), std::string::npos);
  EXPECT_EQ(client, nullptr);
}

TEST(CAbi, SaysUnavailableWithoutARouter) {
  cistern_client* client = nullptr;
  cistern_options options{};
  options.struct_size = sizeof(options);
  options.router = "127.0.0.1:1";  // Nobody listens there.
  options.fail_fast = 1;
  EXPECT_EQ(cistern_connect(&options, &client), CISTERN_UNAVAILABLE);
  EXPECT_NE(std::string(cistern_error_message()), "");
  EXPECT_EQ(client, nullptr);
}

TEST(CAbi, TakesStructsOfOtherVersions) {
  // Shorter: what it lacks is zero.
  cistern_call call{};
  call.struct_size = offsetof(cistern_call, slice_first);
  call.deadline_ms = 17;
  call.slice_count = 9;
  CallOptions options;
  ASSERT_TRUE(c_abi::Take(&call, options).ok());
  EXPECT_EQ(options.deadline.count(), 17);
  EXPECT_EQ(options.slice_count, 0);
  // Longer: fine while the rest is zero.
  struct Newer {
    cistern_call call;
    uint64_t later;
  } newer{};
  newer.call.struct_size = sizeof(newer);
  newer.call.slice_count = 3;
  ASSERT_TRUE(c_abi::Take(&newer.call, options).ok());
  EXPECT_EQ(options.slice_count, 3);
  newer.later = 1;
  const Status refused = c_abi::Take(&newer.call, options);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("newer libcistern"), std::string::npos);
}

// What the structs were before they grew, byte for byte, with something behind them that is not theirs.
TEST(CAbi, CallersOfBeforeAreTakenAsTheyWere) {
  struct {
    size_t struct_size = 16;
    uint32_t deadline_ms = 5;
    uint16_t slice_first = 1, slice_count = 2;
    uint64_t behind = ~uint64_t{0};
  } call;
  CallOptions options;
  ASSERT_TRUE(c_abi::Take(reinterpret_cast<const cistern_call*>(&call), options).ok());
  EXPECT_EQ(options.deadline.count(), 5);
  EXPECT_EQ(options.slice_first, 1);
  EXPECT_EQ(options.slice_count, 2);
  EXPECT_EQ(options.span_first, 0);
  EXPECT_EQ(options.span_count, 0);
  EXPECT_FALSE(options.host_shared);
  std::vector<unsigned char> connect(sizeof(cistern_options), 0xff);
  std::fill_n(connect.begin(), 72, 0);
  connect[0] = 72;
  ClientOptions client;
  ASSERT_TRUE(c_abi::Take(reinterpret_cast<const cistern_options*>(connect.data()), client).ok());
  EXPECT_EQ(client.host_share, "");
  EXPECT_EQ(client.host_share_bytes, ClientOptions().host_share_bytes);
}

TEST(CAbi, LayersAndSharingReachTheFacade) {
  cistern_call call{};
  call.struct_size = sizeof(call);
  call.span_first = 3;
  call.span_count = 4;
  call.host_shared = 1;
  CallOptions options;
  ASSERT_TRUE(c_abi::Take(&call, options).ok());
  EXPECT_EQ(options.span_first, 3);
  EXPECT_EQ(options.span_count, 4);
  EXPECT_TRUE(options.host_shared);
  cistern_options connect{};
  connect.struct_size = sizeof(connect);
  connect.host_share = "engine 7";
  connect.host_share_bytes = 1 << 20;
  ClientOptions client;
  ASSERT_TRUE(c_abi::Take(&connect, client).ok());
  EXPECT_EQ(client.host_share, "engine 7");
  EXPECT_EQ(client.host_share_bytes, size_t{1} << 20);
}

TEST(CAbi, SubmissionsRefuseThroughTheirCallback) {
  struct Seen {
    int calls = 0;
    cistern_code code = CISTERN_OK;
    std::string message;
  } seen;
  const auto done = [](void* user, const cistern_outcome* outcome) {
    auto* s = static_cast<Seen*>(user);
    ++s->calls;
    s->code = outcome->code;
    s->message = outcome->message;
    EXPECT_EQ(outcome->struct_size, sizeof(*outcome));
    EXPECT_EQ(outcome->hit, nullptr);
  };
  EXPECT_EQ(cistern_submit_plan(nullptr, nullptr, nullptr, done, &seen), 0u);
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(seen.code, CISTERN_INVALID_ARGUMENT);
  EXPECT_EQ(seen.message, "client: null");
}

TEST(CAbi, TurnsWhatIsThrownIntoACode) {
  EXPECT_EQ(c_abi::Guarded([]() -> cistern_code { throw std::bad_alloc(); }), CISTERN_RESOURCE_EXHAUSTED);
  EXPECT_EQ(c_abi::Guarded([]() -> cistern_code { throw std::length_error("too long"); }), CISTERN_INTERNAL);
  EXPECT_STREQ(cistern_error_message(), "too long");
}

}  // namespace
}  // namespace cistern
