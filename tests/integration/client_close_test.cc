#include <atomic>
#include <future>
#include <thread>

#include "client/client_impl.h"
#include "tests/integration/client_on_node.h"

// Clients that close while calls are out, at every step of them, with the node alive or just dead. Router and
// node are real, on loopback in this process.
namespace cistern {
namespace {

constexpr int kStepsMax = 400;  // Of one call, as Poll counts them.

class ClientCloseTest : public ClientOnNode, public testing::WithParamInterface<const char*> {
 protected:
  std::unique_ptr<Client> Connect() { return ClientOnNode::Connect(GetParam()); }
};

TEST_P(ClientCloseTest, AtEachStepOfAFetchWithSeveralPlans) {
  bool whole = false;
  for (int steps = 0; steps < kStepsMax && !whole; ++steps) {
    SCOPED_TRACE(steps);
    std::unique_ptr<Client> client = Connect();
    if (steps == 0) Fill(*client);
    int ended = 0;
    LoadReport report;
    Fetch(*client, [&](LoadReport r) {
      ++ended;
      report = std::move(r);
    });
    Steps(*client, steps, ended);
    whole = ended == 1;
    client.reset();
    EXPECT_EQ(ended, 1);
    EXPECT_TRUE(!whole || report.ok_pages() == 2) << report.ok_pages();
  }
  EXPECT_TRUE(whole) << "a fetch takes more than kStepsMax steps";
}

TEST_P(ClientCloseTest, RightAfterTheNodeHasDiedAtEachStepOfAFetch) {
  for (int steps = 0; steps < 8; ++steps) {
    SCOPED_TRACE(steps);
    std::unique_ptr<Client> client = Connect();
    Fill(*client);
    int ended = 0;
    Fetch(*client, [&](LoadReport) { ++ended; });
    Steps(*client, steps, ended);
    StopNode();
    if (steps % 2 == 1) Steps(*client, 1, ended);
    client.reset();
    EXPECT_EQ(ended, 1);
    StartNode();
  }
}

TEST_P(ClientCloseTest, CallbacksMayAskForMoreAndAreRefused) {
  std::unique_ptr<Client> client = Connect();
  Fill(*client);
  Client* const raw = client.get();
  std::vector<Code> told;
  const auto more = [&](LoadReport) {
    raw->Lookup(chain_, {}, [&](Status status, uint32_t) { told.push_back(status.code()); });
    raw->Plan(chain_, {}, [&](Status status, const Hit& hit) {
      told.push_back(status.code());
      raw->Release(hit);
    });
    Fetch(*raw, [&](const LoadReport& report) { told.push_back(report.status.code()); });
    raw->Cancel(1);
    (void)raw->Poll();
    (void)raw->Counters();
    told.push_back(raw->LookupWait(chain_).status().code());
  };
  Fetch(*client, more);
  client.reset();
  ASSERT_EQ(told.size(), 4u);
  for (const Code code : told) EXPECT_EQ(code, Code::kCancelled);
}

TEST_P(ClientCloseTest, FromInsideACallback) {
  std::unique_ptr<Client> client = Connect();
  Fill(*client);
  int ended = 0;
  Fetch(*client, [&](LoadReport) {
    ++ended;
    client.reset();
  });
  Client* const raw = client.get();
  const int fd = raw->event_fd();
  while (ended == 0) {
    pollfd readable{fd, POLLIN, 0};
    ::poll(&readable, 1, 100);
    raw->Poll();
  }
  EXPECT_EQ(client, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Paths, ClientCloseTest, testing::Values("socket", "map"),
                         [](const auto& path) { return std::string(path.param); });

// Boot time. From Watch on each look at it adds a step, and look number `opens_at` opens the gate.
class WatchedClock final : public Clock {
 public:
  Nanos Now() override {
    const int64_t looks = watched_ ? ++looks_ : 0;
    if (looks > 0 && looks == opens_at_) Open();
    return BootClock().Now() + looks * step_;
  }
  void Watch(Nanos step, int64_t opens_at) {
    step_ = step;
    opens_at_ = opens_at;
    watched_ = true;
  }
  void Open() {
    open_ = true;
    open_.notify_all();
  }
  void WaitOpen() { open_.wait(false); }

 private:
  Nanos step_ = 0;
  int64_t opens_at_ = 0;
  std::atomic<int64_t> looks_{0};
  std::atomic<bool> watched_{false}, open_{false};
};

// Another thread is inside a callback of the client, behind the clock's gate.
class ClientCloseBesideACallback : public ClientOnNode {
 protected:
  void SetUp() override {
    ClientOnNode::SetUp();
    ClientOptions options;
    options.router = address();
    Result<std::unique_ptr<Client>> client = Client::Impl::Connect(options, clock_.get());
    ASSERT_TRUE(client.ok()) << client.status().message();
    client_ = std::move(client.value());
    Fill(*client_);
    std::promise<void> inside;
    thread_ = std::thread([this, &inside] {
      Client* const raw = client_.get();
      raw->Lookup(chain_, {}, [this, &inside](Status, uint32_t) {
        inside.set_value();
        clock_->WaitOpen();
        left_ = true;
      });
      while (!left_) raw->Poll();
    });
    inside.get_future().wait();
  }
  void TearDown() override {
    if (clock_ != nullptr) clock_->Open();
    if (thread_.joinable()) thread_.join();
    client_.reset();
    ClientOnNode::TearDown();
  }

  std::unique_ptr<WatchedClock> clock_ = std::make_unique<WatchedClock>();
  std::unique_ptr<Client> client_;
  std::atomic<bool> left_{false};
  std::thread thread_;
};

TEST_F(ClientCloseBesideACallback, CloseWaitsUntilTheThreadHasLeft) {
  constexpr int64_t kLooks = 100;  // Far more than ending the calls takes: Close is in its wait by then.
  clock_->Watch(0, kLooks);
  EXPECT_TRUE(client_->Close().ok());
  EXPECT_TRUE(left_);
}

TEST_F(ClientCloseBesideACallback, CloseGivesUpAndTheMemoryStays) {
  clock_->Watch(kSecond, 0);
  ASSERT_EQ(client_->Close().code(), Code::kDeadlineExceeded);
  EXPECT_FALSE(left_);
  client_.reset();
  EXPECT_FALSE(left_);
  clock_->Open();
  thread_.join();
  (void)clock_.release();  // Stays with the client.
}

}  // namespace
}  // namespace cistern
