#include <poll.h>

#include <functional>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "core/testing/failing_new.h"
#include "tests/integration/client_on_node.h"

// Clients of a process whose memory ends at any one allocation.
namespace cistern {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);
constexpr int kAllocationsMax = 4000;

class ClientMemoryTest : public ClientOnNode {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "no allocation fails where ThreadSanitizer has the operators";
#endif
    ClientOnNode::SetUp();
  }
  LoadReport FetchWait(Client& client, std::chrono::milliseconds deadline = std::chrono::milliseconds(0)) {
    CallOptions options;
    options.deadline = deadline;
    options.tail = &tail_;
    return client.FetchWait(chain_, pages_, options);
  }
  // Polls until nothing is out any more, not even a chunk that a node may be reading.
  static void Quiet(Client& client) {
    const auto out = [&] {
      uint64_t open = 0;
      for (const auto& [name, value] : client.Counters()) open += name == "client_requests_open" ? value : 0;
      MutexLock lock(&client.impl()->mutex_);
      return open + client.impl()->core_->outstanding();
    };
    while (out() > 0) {
      pollfd readable{client.event_fd(), POLLIN, 0};
      ::poll(&readable, 1, 100);
      client.Poll();
    }
  }
  static size_t InCore(Client& client) {
    MutexLock lock(&client.impl()->mutex_);
    return client.impl()->core_->outstanding() + client.impl()->ready_.size();
  }
  // Runs `call` on a thread that has no memory at allocation `at`; a call that does not end is a failure.
  struct Attempt {
    bool thrown = false;
    bool past_all = false;  // There were fewer allocations.
  };
  static Attempt WithoutMemoryAt(int at, const std::function<void()>& call) {
    auto ended = std::async(std::launch::async, [&] {
      Attempt attempt;
      t_allocations_left = at;
      try {
        call();
      } catch (const std::bad_alloc&) {
        attempt.thrown = true;
      }
      attempt.past_all = std::exchange(t_allocations_left, -1) >= 0;
      return attempt;
    });
    if (ended.wait_for(kPatience) != std::future_status::ready) std::abort();
    return ended.get();
  }
  // Nothing of it is warm but the connection.
  std::unique_ptr<Client> ConnectCold() {
    std::unique_ptr<Client> client = Connect("map");
    EXPECT_TRUE(client->LookupWait(chain_).ok());
    return client;
  }
  static size_t FreeChunks(Client& client) {
    MutexLock lock(&client.impl()->mutex_);
    return client.impl()->window_->free_chunks();
  }
};

TEST_F(ClientMemoryTest, OneFailedAllocationHangsNoThread) {
  std::unique_ptr<Client> client = Connect("map");
  Fill(*client);
  bool all = false;
  for (int at = 0; at < kAllocationsMax && !all; ++at) {
    SCOPED_TRACE(at);
    t_allocations_left = at;
    try {
      (void)FetchWait(*client, std::chrono::milliseconds(50));
    } catch (const std::bad_alloc&) {
    }
    all = std::exchange(t_allocations_left, -1) >= 0;
    auto after = std::async(std::launch::async, [&] { return FetchWait(*client).status.code(); });
    if (after.wait_for(kPatience) != std::future_status::ready) std::abort();
  }
  EXPECT_TRUE(all) << "a fetch takes more than kAllocationsMax allocations";
  EXPECT_EQ(FetchWait(*client).ok_pages(), 2u) << "it is no worse a client than it was";
}

// What is known of peers is whole whichever allocation of a first submission fails: it connects.
TEST_F(ClientMemoryTest, AConnectionWithoutMemoryBreaksNoTable) {
  Fill(*Connect("map"));
  for (const char* transport : {"map", "socket"}) {
    SCOPED_TRACE(transport);
    bool all = false;
    for (int at = 0; at < kAllocationsMax && !all; ++at) {
      SCOPED_TRACE(at);
      const std::unique_ptr<Client> client = Connect(transport);
      t_allocations_left = at;
      try {
        Fetch(*client, [](const LoadReport&) {});
      } catch (const std::bad_alloc&) {
      }
      all = std::exchange(t_allocations_left, -1) >= 0;
      Quiet(*client);
      ASSERT_EQ(FetchWait(*client).ok_pages(), 2u) << "it is no worse a client than it was";
    }
    EXPECT_TRUE(all);
  }
}

// From the first address to the pages: a call that connects waits for no deadline, and the peer is not lost.
TEST_F(ClientMemoryTest, ACallThatConnectsWithoutMemoryEndsAtOnce) {
  Fill(*Connect("map"));
  for (const char* transport : {"map", "socket"}) {
    Attempt attempt;
    for (int at = 0; at < kAllocationsMax && !attempt.past_all; ++at) {
      SCOPED_TRACE(absl::StrCat(transport, " ", at));
      const std::unique_ptr<Client> client = Connect(transport);
      LoadReport report;
      attempt = WithoutMemoryAt(at, [&] { report = FetchWait(*client); });
      for (const PageResult page : report.pages) EXPECT_NE(page, PageResult::kDeadline);
      ASSERT_EQ(FetchWait(*client).ok_pages(), 2u) << "it is no worse a client than it was";
    }
    EXPECT_TRUE(attempt.past_all);
  }
}

// Memory may end in the submission, in a handshake, and while its report is made.
TEST_F(ClientMemoryTest, ACallbackIsToldWhicheverAllocationFails) {
  Fill(*Connect("map"));
  const std::pair<const char*, std::function<void(Client&, int&)>> calls[] = {
      {"fetch", [&](Client& c, int& told) { Fetch(c, [&told](const LoadReport&) { ++told; }); }},
      {"lookup", [&](Client& c, int& told) { c.Lookup(chain_, {}, [&told](Status, uint32_t) { ++told; }); }},
      {"plan", [&](Client& c, int& told) { c.Plan(chain_, {}, [&told](Status, Hit) { ++told; }); }},
  };
  for (const char* transport : {"map", "socket"}) {
    for (const auto& [name, call] : calls) {
      bool all = false;
      for (int at = 0; at < kAllocationsMax && !all; ++at) {
        SCOPED_TRACE(absl::StrCat(transport, " ", name, " ", at));
        const std::unique_ptr<Client> client = Connect(transport);
        int told = 0;
        bool thrown = false;
        t_allocations_left = at;
        try {
          call(*client, told);
        } catch (const std::bad_alloc&) {
          thrown = true;
        }
        while (!thrown && told == 0 && InCore(*client) > 0) {
          pollfd readable{client->event_fd(), POLLIN, 0};
          ::poll(&readable, 1, -1);
          try {
            client->Poll();
          } catch (const std::bad_alloc&) {
          }
        }
        all = std::exchange(t_allocations_left, -1) >= 0;
        Quiet(*client);
        ASSERT_EQ(told, thrown ? 0 : 1);
      }
      EXPECT_TRUE(all);
    }
  }
}

// Either the submission throws and nothing comes of it, or its callback runs, once.
TEST_F(ClientMemoryTest, ASubmissionWithoutMemoryTellsNobodyAndWritesNothing) {
  for (const char* transport : {"map", "socket"}) {
    std::unique_ptr<Client> client = Connect(transport);
    if (memory_.empty()) Fill(*client);
    EXPECT_EQ(FetchWait(*client).ok_pages(), 2u);
    bool all = false;
    for (int at = 0; at < 1000 && !all; ++at) {
      SCOPED_TRACE(at);
      std::fill(memory_.begin(), memory_.end(), std::byte{5});
      int told = 0;
      bool thrown = false;
      const auto done = [&](const LoadReport&) { ++told; };
      t_allocations_left = at;
      try {
        Fetch(*client, done);
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
      all = std::exchange(t_allocations_left, -1) >= 0;
      const std::vector<std::byte> as_given_back = memory_;
      Quiet(*client);
      EXPECT_EQ(told, thrown ? 0 : 1);
      EXPECT_TRUE(!thrown || memory_ == as_given_back);
    }
    EXPECT_TRUE(all) << "a submission takes more than 1000 allocations";
  }
}

// Where even its end finds no memory, it ends with the first Poll that does, not with its deadline.
TEST_F(ClientMemoryTest, ASubmissionThatCouldNotEndIsOverWithTheNextPoll) {
  for (const char* transport : {"map", "socket"}) {
    std::unique_ptr<Client> client = Connect(transport);
    if (memory_.empty()) Fill(*client);
    EXPECT_EQ(FetchWait(*client).ok_pages(), 2u);
    bool all = false;
    for (int at = 0; at < 1000 && !all; ++at) {
      SCOPED_TRACE(absl::StrCat(transport, " ", at));
      bool thrown = false;
      t_memory_stays_out = true;
      t_allocations_left = at;
      try {
        Fetch(*client, [](const LoadReport&) {});
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
      all = std::exchange(t_allocations_left, -1) > 0;
      t_memory_stays_out = false;
      if (thrown) {
        client->Poll();
        MutexLock lock(&client->impl()->mutex_);
        ASSERT_EQ(client->impl()->core_->outstanding(), 0u);
      }
      Quiet(*client);
    }
    EXPECT_TRUE(all) << "a submission takes more than 1000 allocations";
  }
}

// From ordinary memory a store goes through a chunk of the window, and there are four.
TEST_F(ClientMemoryTest, AStoreWithoutMemoryLosesNoChunk) {
  constexpr uint32_t kBlocks = 6;
  layout_.block_tokens = 16;
  layout_.part_bytes = 64 << 10;
  std::vector<std::byte> bytes(size_t{kBlocks} * layout_.part_bytes, std::byte{5});
  std::vector<ConstPage> sources;
  for (uint32_t i = 0; i < kBlocks; ++i)
    sources.emplace_back(bytes.data() + size_t{i} * layout_.part_bytes, layout_.part_bytes);
  std::unique_ptr<Client> maker = Connect("map");
  uint32_t prompt = 0;
  const auto next = [&] {
    const std::vector<uint32_t> tokens(size_t{kBlocks} * layout_.block_tokens, ++prompt);
    return maker->MakeChain(layout_, tokens).value();
  };
  CallOptions for_ever;
  for_ever.deadline = std::chrono::milliseconds::max();
  Attempt attempt;
  for (int at = 0; at < kAllocationsMax && !attempt.past_all; ++at) {
    SCOPED_TRACE(at);
    chain_ = next();
    std::unique_ptr<Client> client = ConnectCold();
    attempt = WithoutMemoryAt(at, [&] { (void)client->StoreWait(chain_, 0, sources, for_ever); });
    Quiet(*client);
    ASSERT_EQ(FreeChunks(*client), kStagingChunks);
    ASSERT_EQ(client->StoreWait(next(), 0, sources).pages, std::vector<PageResult>(kBlocks, PageResult::kOk))
        << "it is no worse a client than it was";
  }
  EXPECT_TRUE(attempt.past_all);
}

// Whether it pulls parts or asks for them: what has begun is counted before anything may fail.
TEST_F(ClientMemoryTest, AFetchWithoutMemoryLeavesNothingOpen) {
  Fill(*Connect("map"));
  for (const char* transport : {"map", "socket"}) {
    Attempt attempt;
    for (int at = 0; at < kAllocationsMax && !attempt.past_all; ++at) {
      SCOPED_TRACE(absl::StrCat(transport, " ", at));
      std::unique_ptr<Client> client = Connect(transport);
      EXPECT_TRUE(client->LookupWait(chain_).ok());
      attempt = WithoutMemoryAt(at, [&] { (void)FetchWait(*client); });
      auto quiet = std::async(std::launch::async, [&] { Quiet(*client); });
      if (quiet.wait_for(kPatience) != std::future_status::ready) std::abort();
      EXPECT_EQ(FetchWait(*client).ok_pages(), 2u) << "it is no worse a client than it was";
    }
    EXPECT_TRUE(attempt.past_all);
  }
}

// A hit lets its leases go in a destructor; what is written to a socket is written once.
TEST_F(ClientMemoryTest, AStoreOrALoadWithoutMemoryLeavesTheClientAsItWas) {
  std::unique_ptr<Client> maker = Connect("map");
  Fill(*maker);
  const uint64_t block = pages_[0].pieces[0].bytes;
  const std::vector<ConstPage> sources(2, ConstPage(memory_.data(), block));
  const ConstPage tail(memory_.data() + 2 * block, memory_.size() - 2 * block);
  uint32_t prompt = 100;
  const auto next = [&] {
    return maker->MakeChain(layout_, std::vector<uint32_t>(tail_tokens_, ++prompt)).value();
  };
  const std::function<void(Client&)> calls[] = {
      [&](Client& client) { (void)client.StoreWait(next(), 0, sources); },
      [&](Client& client) { (void)client.StoreTailWait(next(), tail_tokens_, tail, {}); },
      [&](Client& client) {
        const Result<Hit> hit = client.PlanWait(chain_);
        if (hit.ok()) (void)client.LoadWait(hit.value(), 0, pages_);
      }};
  for (const char* transport : {"map", "socket"}) {
    for (const auto& call : calls) {
      Attempt attempt;
      for (int at = 0; at < kAllocationsMax && !attempt.past_all; ++at) {
        SCOPED_TRACE(absl::StrCat(transport, " call ", &call - calls, " at ", at));
        std::unique_ptr<Client> client = Connect(transport);
        EXPECT_TRUE(client->LookupWait(chain_).ok());
        attempt = WithoutMemoryAt(at, [&] { call(*client); });
        Quiet(*client);
        ASSERT_EQ(client->StoreWait(next(), 0, sources).pages.back(), PageResult::kOk);
        ASSERT_EQ(FetchWait(*client).ok_pages(), 2u) << "it is no worse a client than it was";
      }
      EXPECT_TRUE(attempt.past_all);
    }
  }
}

// As other submissions: either it throws and nothing comes of it, or its callback runs, once.
TEST_F(ClientMemoryTest, WhatIsAskedOfSingleShardsTellsNobodyWithoutMemory) {
  Fill(*Connect("map"));
  int told = 0;
  const auto admin = [&told](const AdminOutcome&) { ++told; };
  std::unique_ptr<Client> client;
  Hit hit;
  const auto core = [&]() -> ClientCore& { return *client->impl()->core_; };
  const std::pair<const char*, std::function<void()>> submissions[] = {
      {"stats", [&] { core().FetchNodeStats("node-1", 0, 0, admin); }},
      {"drop",
       [&] { core().Drop("node-1", 0, DropRequest{.all = false, .blocks = {BlockHash{}}}, 0, admin); }},
      {"quota", [&] { core().Quota("node-1", 0, QuotaRequest{}, 0, admin); }},
      {"agree",
       [&] {
         core().Agree(hit.rep()->first_block(), AgreeRequest{}, 0, [&](const AgreeOutcome&) { ++told; });
       }},
      {"recheck", [&] { core().Recheck(hit.rep()->plan, 0, [&](PartResult) { ++told; }); }},
  };
  for (const auto& [name, submit] : submissions) {
    SCOPED_TRACE(name);
    Attempt attempt;
    for (int at = 0; at < kAllocationsMax && !attempt.past_all; ++at) {
      SCOPED_TRACE(at);
      hit = Hit();
      client = ConnectCold();
      hit = client->PlanWait(chain_).value();
      told = 0;
      attempt = WithoutMemoryAt(at, [&, &call = submit] {
        client->impl()->Locked([&] {
          call();
          return true;
        });
      });
      Quiet(*client);
      EXPECT_EQ(told, attempt.thrown ? 0 : 1);
    }
    EXPECT_TRUE(attempt.past_all);
  }
}

TEST_F(ClientMemoryTest, ARemovalWithoutMemoryEndsAndHarmsNothing) {
  Fill(*Connect("map"));
  const std::vector<Chain> chains = {chain_};
  RemoveReport report;
  Attempt attempt;
  for (int at = 0; at < kAllocationsMax && !attempt.past_all; ++at) {
    SCOPED_TRACE(at);
    std::unique_ptr<Client> client = ConnectCold();
    attempt = WithoutMemoryAt(at, [&] { report = client->RemoveWait(chains); });
    Quiet(*client);
    EXPECT_TRUE(client->RemoveWait(chains).status.ok()) << "it is no worse a client than it was";
  }
  EXPECT_TRUE(attempt.past_all);
  EXPECT_TRUE(report.status.ok()) << report.status.message();
  EXPECT_EQ(Connect("map")->LookupWait(chain_).value(), 0u);
}

}  // namespace
}  // namespace cistern
