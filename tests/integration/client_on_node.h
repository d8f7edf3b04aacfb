#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache_node/registrar.h"
#include "cache_node/shard_paths.h"
#include "cistern/client.h"
#include "router/service_fixture.h"

namespace cistern {

// Clients of a real router and a real node, on loopback in this process.
class ClientOnNode : public ServiceFixture {
 protected:
  void SetUp() override {
    StartRouter();
    StartNode();
  }
  void TearDown() override {
    Go();
    StopNode();
  }
  // The node stands still until Go.
  void Stand() {
    go_ = std::promise<void>();
    std::promise<void> standing;
    ASSERT_TRUE(loop_->Post([&](NodeShard&) {
      standing.set_value();
      go_.get_future().wait();
    }));
    standing.get_future().wait();
    stands_ = true;
  }
  void Go() {
    if (std::exchange(stands_, false)) go_.set_value();
  }

  void StartNode() {
    NodeOptions options;
    options.listen = "127.0.0.1:0";
    options.transport = "auto";
    NodeShardOptions shard;
    shard.node_id = "node-1";
    shard.ram_bytes = 64 << 20;
    shard.cluster_key = key_;
    RegistrarOptions registrar;
    registrar.router = address();
    registrar.node_id = "node-1";
    registrar.place = "one-folder";  // A node that starts again need not wait for the one before.
    registrar.key = key_;
    registrar.ram_bytes = shard.ram_bytes;
    registrar.shards.emplace_back();
    absl::StatusOr<std::unique_ptr<ShardLoop>> loop =
        MakeShard(options, shard, nullptr, registrar.shards.back());
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    RegistrarCallbacks callbacks;
    callbacks.report = [] { return NodeReport(); };
    callbacks.on_registered = [this](const Registration& registration) {
      EXPECT_TRUE(loop_->Post(
          [registration](NodeShard& s) { s.SetIdentity(registration.cluster, registration.incarnation); }));
    };
    loop_->Start();
    registrar_ = std::make_unique<Registrar>(registrar, callbacks);
    registrar_->Start();
    ASSERT_TRUE(registrar_->WaitRegistered(kTestPatience).ok());
  }
  void StopNode() {
    registrar_.reset();
    loop_.reset();
  }

  std::unique_ptr<Client> Connect(const std::string& transport) {
    ClientOptions options;
    options.router = address();
    options.transport = transport;
    options.window_bytes = 1 << 20;
    options.default_deadline = std::chrono::seconds(10);
    Result<std::unique_ptr<Client>> client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status().message();
    return std::move(client.value());
  }
  uint64_t PageBytes(Client& client, uint64_t tokens) const {
    const Result<std::vector<PagePart>> parts = client.PageParts(chain_, {}, tokens);
    EXPECT_TRUE(parts.ok()) << parts.status().message();
    uint64_t bytes = 0;
    for (const PagePart& part : parts.value()) bytes += part.bytes;
    return bytes;
  }
  // A prompt in a layout with states, so that a hit is several plans and loads; stored once.
  void Fill(Client& client) {
    layout_ = NamedLayout("qwen3-next", 64).value();
    const std::vector<uint32_t> tokens(2 * layout_.block_tokens, 7);
    chain_ = client.MakeChain(layout_, tokens).value();
    tail_tokens_ = tokens.size();
    const uint64_t block = PageBytes(client, 0), tail = PageBytes(client, tail_tokens_);
    memory_.assign(2 * block + tail, std::byte{3});
    pages_ = {Page(memory_.data(), block), Page(memory_.data() + block, block)};
    tail_ = Page(memory_.data() + 2 * block, tail);
    const std::vector<ConstPage> sources = {ConstPage(memory_.data(), block),
                                            ConstPage(memory_.data() + block, block)};
    EXPECT_EQ(client.StoreWait(chain_, 0, sources).pages.back(), PageResult::kOk);
    EXPECT_EQ(client.StoreTailWait(chain_, tail_tokens_, ConstPage(memory_.data() + 2 * block, tail), {})
                  .pages.back(),
              PageResult::kOk);
  }
  CallId Fetch(Client& client, std::function<void(LoadReport)> done,
               std::chrono::milliseconds deadline = std::chrono::milliseconds(0)) {
    CallOptions options;
    options.tail = &tail_;
    options.deadline = deadline;
    return client.Fetch(chain_, pages_, options, std::move(done));
  }
  // Polls until something has happened `steps` times, or the call has ended.
  static void Steps(Client& client, int steps, const int& ended) {
    for (int did = 0; did < steps && ended == 0;) {
      pollfd readable{client.event_fd(), POLLIN, 0};
      ::poll(&readable, 1, 100);
      did += client.Poll() ? 1 : 0;
    }
  }

  std::unique_ptr<ShardLoop> loop_;
  std::unique_ptr<Registrar> registrar_;
  Layout layout_;
  Chain chain_;
  uint64_t tail_tokens_ = 0;
  std::vector<std::byte> memory_;
  std::vector<Page> pages_;
  Page tail_;

 private:
  std::promise<void> go_;
  bool stands_ = false;
};

}  // namespace cistern
