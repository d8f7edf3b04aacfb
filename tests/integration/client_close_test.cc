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

}  // namespace
}  // namespace cistern
