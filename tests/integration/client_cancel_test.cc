#include <future>
#include <thread>

#include "client/client_impl.h"
#include "tests/integration/client_on_node.h"

// Calls that end before their answers: cancelled at every step, or by their deadline while another thread is
// busy with the client's callbacks. Router and node are real, on loopback in this process.
namespace cistern {
namespace {

constexpr int kStepsMax = 400;  // Of one call, as Poll counts them.
constexpr auto kForEver = std::chrono::hours(24);
constexpr auto kPatience = std::chrono::seconds(60);

class ClientCancelTest : public ClientOnNode, public testing::WithParamInterface<const char*> {};

TEST_P(ClientCancelTest, EndsACallOfSeveralRequestsAtEachOfItsSteps) {
  bool whole = false;
  for (int steps = 0; steps < kStepsMax && !whole; ++steps) {
    SCOPED_TRACE(steps);
    std::unique_ptr<Client> client = Connect(GetParam());
    if (steps == 0) Fill(*client);
    int ended = 0;
    const CallId call = Fetch(
        *client, [&](const LoadReport&) { ++ended; }, kForEver);
    Steps(*client, steps, ended);
    whole = ended == 1;
    Stand();
    client->Cancel(call);
    for (int polls = 0; polls < kStepsMax && ended == 0; ++polls) client->Poll();
    EXPECT_EQ(ended, 1) << "some of it goes on";
    for (const auto& [name, value] : client->Counters()) {
      EXPECT_TRUE(name != "client_plans_held" || value == 0) << value << " plans are left";
    }
    Go();
  }
  EXPECT_TRUE(whole) << "a fetch takes more than kStepsMax steps";
}
INSTANTIATE_TEST_SUITE_P(Paths, ClientCancelTest, testing::Values("socket", "map"),
                         [](const auto& path) { return std::string(path.param); });

class ClientTurnsTest : public ClientOnNode {};

// Two threads wait in calls, one of them for both. A callback keeps that one until the other's call has
// ended.
TEST_F(ClientTurnsTest, AThreadInACallbackKeepsNobodyFromTheirDeadline) {
  std::unique_ptr<Client> client = Connect("socket");
  Fill(*client);
  Client::Impl& impl = *client->impl();
  const auto until = [&](const std::function<bool()>& holds) {
    for (;;) {
      MutexLock lock(&impl.mutex_);
      if (holds()) return;
    }
  };
  Stand();
  const auto lookup = [&](std::chrono::milliseconds deadline) {
    return std::async(std::launch::async, [this, &client, deadline] {
      CallOptions options;
      options.deadline = deadline;
      return client->LookupWait(chain_, options).ok();
    });
  };
  auto driver = lookup(kForEver);
  until([&] {
    impl.mutex_.AssertHeld();
    return impl.asleep_;
  });
  auto other = lookup(std::chrono::seconds(1));
  until([&] {
    impl.mutex_.AssertHeld();
    return impl.waiters_ == 2;
  });
  std::promise<void> leave;
  const CallId call = client->Lookup(chain_, {}, [&](Status, uint32_t) { leave.get_future().wait(); });
  client->Cancel(call);
  EXPECT_EQ(other.wait_for(kPatience), std::future_status::ready) << "nobody drives";
  leave.set_value();
  Go();
  EXPECT_TRUE(driver.get());
  other.wait();
}

}  // namespace
}  // namespace cistern
