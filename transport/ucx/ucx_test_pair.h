#pragma once

#include <sched.h>

#include <memory>
#include <string>

#include "core/clock.h"
#include "gtest/gtest.h"
#include "transport/transport_suite.h"
#include "transport/ucx/ucx_transport.h"

namespace cistern {

// Two UcxTransports of one process, each with a context of its own.
class UcxPair final : public TransportPair {
 public:
  UcxPair(TransportHandler& client_handler, TransportHandler& node_handler, const std::string& transports,
          const std::string& host = "127.0.0.1", bool emulated_gets = false)
      : client_handler_(client_handler),
        node_handler_(node_handler),
        transports_(transports),
        host_(host),
        emulated_gets_(emulated_gets) {
    ReviveClient();
    ReviveNode();
  }
  UcxTransport& client() override { return *client_; }
  UcxTransport& node() override { return *node_; }
  std::string address() const override { return address_; }
  void Step() override {
    bool moved = client_ != nullptr && client_->Poll();
    if (node_ != nullptr) moved |= node_->Poll();
    // Connections are made by a thread of UCX: on a busy machine it needs our CPU to get on.
    if (!moved) sched_yield();
  }
  void KillClient() override { client_.reset(); }
  void KillNode() { node_.reset(); }
  void ReviveClient() { client_ = Make(client_handler_); }
  void ReviveNode() {
    node_ = Make(node_handler_);
    if (node_ == nullptr) return;
    absl::StatusOr<std::string> bound = node_->Listen("ucx:" + host_ + ":0");
    EXPECT_TRUE(bound.ok()) << bound.status();
    if (bound.ok()) address_ = *bound;
  }
  SimClock& clock() { return clock_; }

 private:
  std::unique_ptr<UcxTransport> Make(TransportHandler& handler) {
    FabricOptions options;
    options.transports = transports_;
    options.emulated_gets = emulated_gets_;
    auto context = UcxContext::Open(options);
    EXPECT_TRUE(context.ok()) << context.status();
    if (!context.ok()) return nullptr;
    auto transport = UcxTransport::Create(*std::move(context), clock_, FabricThreads::kOne);
    EXPECT_TRUE(transport.ok()) << transport.status();
    if (!transport.ok()) return nullptr;
    (*transport)->SetHandler(&handler);
    return *std::move(transport);
  }
  TransportHandler &client_handler_, &node_handler_;
  const std::string transports_, host_;
  const bool emulated_gets_;
  SimClock clock_;
  std::unique_ptr<UcxTransport> client_, node_;
  std::string address_;
};

}  // namespace cistern
