#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>

#include "cistern/cistern_c.h"
#include "client/client_impl.h"
#include "tests/integration/client_on_node.h"

// Clients of a process that forks, that closes them under its own threads' feet, and that runs out of
// descriptors.
namespace cistern {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

class ClientStrainTest : public ClientOnNode {
 protected:
  LoadReport FetchWait(Client& client, std::chrono::milliseconds deadline = std::chrono::milliseconds(0)) {
    CallOptions options;
    options.deadline = deadline;
    options.tail = &tail_;
    return client.FetchWait(chain_, pages_, options);
  }
};

TEST_F(ClientStrainTest, AForkedChildNeitherUsesNorDisturbsTheClient) {
  std::unique_ptr<Client> client = Connect("map");
  Fill(*client);
  Hit hit = client->PlanWait(chain_).value();
  // As when another thread is inside a call: whoever touches the mutex in the child stays there.
  client->impl()->mutex_.Lock();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    int wrong = 0;
    const auto check = [&wrong](bool right, int bit) { wrong |= right ? 0 : 1 << bit; };
    int told = 0;
    check(FetchWait(*client).status.code() == Code::kFailedPrecondition, 0);
    check(client->PlanWait(chain_).status().code() == Code::kFailedPrecondition, 1);
    client->Lookup(chain_, {},
                   [&](const Status& s, uint32_t) { told += s.code() == Code::kFailedPrecondition; });
    Fetch(*client, [&](const LoadReport& r) { told += r.status.code() == Code::kFailedPrecondition; });
    check(told == 2, 2);
    check(!client->Poll() && client->event_fd() < 0, 3);
    check(client->AllocateBuffer(64) == nullptr && client->Counters().empty(), 4);
    client->Release(hit);
    check(client->Close().code() == Code::kFailedPrecondition, 5);
    hit = Hit();
    client.reset();
    ClientOptions options;
    options.router = address();
    check(Client::Connect(options).status().code() == Code::kFailedPrecondition, 6);
    _exit(wrong);
  }
  client->impl()->mutex_.Unlock();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(FetchWait(*client).ok_pages(), 2u);
}

TEST_F(ClientStrainTest, CloseEndsWhatOtherThreadsWaitFor) {
  Fill(*Connect("map"));
  for (const bool spin : {false, true}) {
    ClientOptions options;
    options.router = address();
    options.spin = spin;
    options.default_deadline = std::chrono::milliseconds::max();
    std::unique_ptr<Client> client = std::move(Client::Connect(options).value());
    EXPECT_EQ(FetchWait(*client).ok_pages(), 2u);
    Stand();
    constexpr uint32_t kThreads = 3;
    std::vector<std::future<LoadReport>> ended;
    Client* const raw = client.get();  // The threads do not look at what is reset.
    for (uint32_t i = 0; i < kThreads; ++i)
      ended.push_back(std::async(std::launch::async, [this, raw] { return FetchWait(*raw); }));
    while (client->impl()->inside_ < kThreads) std::this_thread::yield();
    auto closed = std::async(std::launch::async, [&] { client.reset(); });
    if (closed.wait_for(kPatience) != std::future_status::ready) std::abort();
    for (auto& report : ended) {
      if (report.wait_for(kPatience) != std::future_status::ready) std::abort();
      const LoadReport got = report.get();
      EXPECT_TRUE(got.status.code() == Code::kCancelled || got.pages.back() == PageResult::kCancelled)
          << got.status.message();
    }
    Go();
  }
}

TEST_F(ClientStrainTest, AClosedClientRefusesAndKeepsItsBuffers) {
  std::unique_ptr<Client> client = Connect("map");
  Fill(*client);
  auto* buffer = static_cast<char*>(client->AllocateBuffer(4096));
  ASSERT_NE(buffer, nullptr);
  Stand();
  int ended = 0;
  Fetch(*client, [&](const LoadReport&) { ++ended; });
  EXPECT_TRUE(client->Close().ok());
  EXPECT_EQ(ended, 1);
  std::fill_n(buffer, 4096, 'x');
  EXPECT_EQ(client->LookupWait(chain_).status().code(), Code::kCancelled);
  Fetch(*client, [&](const LoadReport& r) { ended += r.status.code() == Code::kCancelled; });
  client->Poll();
  EXPECT_EQ(ended, 2);
  EXPECT_TRUE(client->Close().ok());
  client->FreeBuffer(buffer);
}

TEST_F(ClientStrainTest, SaysThatDescriptorsRunOut) {
  ClientOptions options;
  options.router = address();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = std::min<rlim_t>(before.rlim_cur, 1024);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> taken;
  for (int fd = dup(STDERR_FILENO); fd >= 0; fd = dup(STDERR_FILENO)) taken.push_back(fd);
  for (size_t left = 0; left <= 16; ++left) {
    const auto refused = Client::Connect(options);
    EXPECT_EQ(refused.status().code(), Code::kResourceExhausted) << left;
    close(taken.back());
    taken.pop_back();
  }
  for (const int fd : taken) close(fd);
  EXPECT_TRUE(Client::Connect(options).ok());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(ClientStrainTest, TakesDurationsForEverAndRefusesTextThatIsNone) {
  ClientOptions options;
  options.router = address();
  options.default_deadline = options.connect_deadline = options.breaker_retry = options.negative_ttl =
      std::chrono::milliseconds::max();
  auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status().message();
  Fill(*client.value());
  CallOptions call;
  call.tail = &tail_;
  EXPECT_EQ(client.value()->FetchWait(chain_, pages_, call).ok_pages(), 2u);
  call.deadline = std::chrono::milliseconds::max();
  EXPECT_EQ(client.value()->FetchWait(chain_, pages_, call).ok_pages(), 2u);
  options.lease_ttl = std::chrono::milliseconds::max();
  EXPECT_EQ(Client::Connect(options).status().code(), Code::kInvalidArgument);
  options.lease_ttl = ClientOptions().lease_ttl;
  for (const char* tenant : {"\xff\xfe\x80", "\xc0\xaf", "a\xed\xa0\x80", "\xe2\x82"}) {
    options.tenant = tenant;
    EXPECT_EQ(Client::Connect(options).status().message(), "tenant: not UTF-8") << tenant;
  }
}

void CountDone(void* user, const cistern_outcome* outcome) {
  static_cast<std::vector<cistern_code>*>(user)->push_back(outcome->code);
}

class CAbiStrainTest : public ClientOnNode {
 protected:
  static constexpr uint32_t kBlocks = 4, kBlockTokens = 16, kPart = 4096;
  void SetUp() override {
    ClientOnNode::SetUp();
    cistern_options options{};
    options.struct_size = sizeof(options);
    options.router = address().c_str();
    ASSERT_EQ(cistern_connect(&options, &client_), CISTERN_OK) << cistern_error_message();
    cistern_layout layout{};
    layout.struct_size = sizeof(layout);
    layout.block_tokens = kBlockTokens;
    layout.part_bytes = kPart;
    const std::vector<uint32_t> tokens(size_t{kBlocks} * kBlockTokens, 7);
    ASSERT_EQ(cistern_chain_make(client_, &layout, tokens.data(), tokens.size(), nullptr, 0, &c_chain_),
              CISTERN_OK);
    report_.struct_size = sizeof(report_);
    report_.results = results_;
  }
  void TearDown() override {
    cistern_chain_free(c_chain_);
    cistern_close(client_);
    ClientOnNode::TearDown();
  }
  uint32_t Stored() {
    uint32_t blocks = 0;
    EXPECT_EQ(cistern_lookup(client_, c_chain_, nullptr, &blocks), CISTERN_OK);
    return blocks;
  }

  cistern_client* client_ = nullptr;
  cistern_chain* c_chain_ = nullptr;
  unsigned char bytes_[kPart] = {};
  const cistern_piece piece_{bytes_, kPart};
  const cistern_page page_{&piece_, 1};
  cistern_page_result results_[kBlocks] = {};
  cistern_report report_{};
};

TEST_F(CAbiStrainTest, RefusesPagesBeforeItReadsThem) {
  const cistern_page null{nullptr, 1};
  const cistern_page many{&piece_, size_t{1} << 40};
  std::vector<cistern_code> ended;
  cistern_submit_store(client_, c_chain_, 0, &null, 1, nullptr, CountDone, &ended);
  cistern_submit_fetch(client_, c_chain_, &null, 1, nullptr, CountDone, &ended);
  cistern_submit_fetch(client_, c_chain_, &page_, size_t{1} << 63, nullptr, CountDone, &ended);
  cistern_submit_fetch(client_, c_chain_, &many, 1, nullptr, CountDone, &ended);
  EXPECT_EQ(ended, std::vector<cistern_code>(4, CISTERN_INVALID_ARGUMENT));
  for (const size_t count : {size_t{100000}, size_t{1} << 63, SIZE_MAX}) {
    EXPECT_EQ(cistern_fetch(client_, c_chain_, &page_, count, nullptr, nullptr), CISTERN_INVALID_ARGUMENT);
    EXPECT_EQ(cistern_store(client_, c_chain_, 1, &page_, count, nullptr, nullptr), CISTERN_INVALID_ARGUMENT);
  }
  EXPECT_EQ(cistern_store(client_, c_chain_, UINT32_MAX, &page_, 1, nullptr, nullptr),
            CISTERN_INVALID_ARGUMENT);
  EXPECT_EQ(Stored(), 0u);
}

TEST_F(CAbiStrainTest, PiecesDoNotWrapIntoABlock) {
  const cistern_piece wrap[] = {{bytes_, SIZE_MAX}, {bytes_, size_t{kPart} + 1}};
  const cistern_page page{wrap, 2};
  EXPECT_EQ(cistern_store(client_, c_chain_, 0, &page, 1, nullptr, &report_), CISTERN_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_fetch(client_, c_chain_, &page, 1, nullptr, &report_), CISTERN_INVALID_ARGUMENT);
}

TEST_F(CAbiStrainTest, ARefusedCallReportsNoPageOkAndDoesNothing) {
  const cistern_piece short_piece{bytes_, 5};
  const cistern_page short_page{&short_piece, 1};
  EXPECT_EQ(cistern_fetch(client_, c_chain_, &short_page, 1, nullptr, &report_), CISTERN_INVALID_ARGUMENT);
  EXPECT_EQ(results_[0], CISTERN_PAGE_INVALID);
  std::fill_n(results_, kBlocks, cistern_page_result{CISTERN_PAGE_OK});
  EXPECT_EQ(cistern_fetch(client_, nullptr, &page_, 1, nullptr, &report_), CISTERN_INVALID_ARGUMENT);
  EXPECT_EQ(results_[0], CISTERN_PAGE_INVALID);
  EXPECT_EQ(cistern_fetch(client_, c_chain_, &page_, kBlocks + 1, nullptr, &report_),
            CISTERN_INVALID_ARGUMENT);
  EXPECT_EQ(results_[kBlocks - 1], CISTERN_PAGE_INVALID);
  report_.struct_size = 0;
  EXPECT_EQ(cistern_store(client_, c_chain_, 0, &page_, 1, nullptr, &report_), CISTERN_INVALID_ARGUMENT);
  EXPECT_EQ(Stored(), 0u);
  report_.struct_size = sizeof(report_);
  EXPECT_EQ(cistern_store(client_, c_chain_, 0, &page_, 1, nullptr, &report_), CISTERN_OK);
  EXPECT_EQ(results_[0], CISTERN_PAGE_OK);
  EXPECT_EQ(report_.ok_pages, 1u);
  EXPECT_EQ(Stored(), 1u);
}

}  // namespace
}  // namespace cistern
