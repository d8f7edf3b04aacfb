#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cistern/client.h"
#include "client/cli/replay.h"
#include "client/cli/trace_chains.h"

namespace cistern {

// Replays against a cluster: the plan of a request is held over its stores, so that a parent stays more
// recent than its children. Owner: the command; one thread; the client outlives it.
class ClientTarget final : public ReplayTarget {
 public:
  ClientTarget(Client& client, const ReplayOptions& options) : client_(client), options_(options) {}
  Status Begin(const TraceRequest& request) override;
  uint64_t Seed(uint32_t block) const override;
  Result<uint32_t> Plan() override;
  LoadReport Load(uint32_t first, std::span<const Page> pages) override;
  StoreReport Store(uint32_t first, std::span<const ConstPage> pages) override;
  void End() override;

 private:
  Client& client_;
  const ReplayOptions options_;
  std::optional<TraceChains> chains_;  // Of block_tokens_.
  uint32_t block_tokens_ = 0;
  Chain chain_;
  Hit hit_;
};

}  // namespace cistern
