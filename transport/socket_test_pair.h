#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>

#include "core/clock.h"
#include "gtest/gtest.h"
#include "transport/socket_transport.h"
#include "transport/transport_suite.h"

namespace cistern {

// An address nobody else on this machine uses.
inline std::string FreshUnixAddress() {
  static std::atomic<int> next{0};
  return "unix:cistern-test-" + std::to_string(getpid()) + "-" + std::to_string(next++);
}

// Two SocketTransports of one process.
class SocketPair final : public TransportPair {
 public:
  SocketPair(TransportHandler& client_handler, TransportHandler& node_handler, const std::string& address,
             SocketOptions options = {}) {
    client_ = *SocketTransport::Create(clock_, options);
    node_ = *SocketTransport::Create(clock_, options);
    client_->SetHandler(&client_handler);
    node_->SetHandler(&node_handler);
    absl::StatusOr<std::string> bound = node_->Listen(address);
    EXPECT_TRUE(bound.ok()) << bound.status();
    if (bound.ok()) address_ = *bound;
  }
  SocketTransport& client() override { return *client_; }
  SocketTransport& node() override { return *node_; }
  std::string address() const override { return address_; }
  void Step() override {
    if (client_ != nullptr) client_->Poll();
    node_->Poll();
  }
  void KillClient() override { client_.reset(); }
  SimClock& clock() { return clock_; }

 private:
  SimClock clock_;
  std::unique_ptr<SocketTransport> client_, node_;
  std::string address_;
};

}  // namespace cistern
