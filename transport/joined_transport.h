#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/fabric.h"
#include "transport/transport.h"
#include "transport/unique_fd.h"

namespace cistern {

// Sockets and a fabric as one transport: addresses "ucx:..." and the peers behind them are the fabric's, all
// else the sockets'. Peers' ids tell which (kFabricPeerBit), so nothing is translated on the way.
//
// Owner and thread as of the two it joins; it owns them.
class JoinedTransport final : public Transport {
 public:
  static absl::StatusOr<std::unique_ptr<JoinedTransport>> Create(std::unique_ptr<Transport> sockets,
                                                                 std::unique_ptr<Fabric> fabric);

  void SetHandler(TransportHandler* handler) override;
  absl::StatusOr<PeerId> Connect(const std::string& address, const ConnectOptions& options) override;
  absl::Status Send(PeerId peer, const OutFrame& frame) override { return Of(peer).Send(peer, frame); }
  absl::Status Pull(PeerId peer, const PullRequest& request) override { return Of(peer).Pull(peer, request); }
  bool Cancel(PeerId peer, uint64_t request_id) override { return Of(peer).Cancel(peer, request_id); }
  bool CancelPull(PeerId peer, uint64_t pull_id) override { return Of(peer).CancelPull(peer, pull_id); }
  void Fence(PeerId peer, const absl::Status& why) override { Of(peer).Fence(peer, why); }
  const PeerPath* Path(PeerId peer) const override { return Of(peer).Path(peer); }
  std::vector<ConstSegment> MappedRegions(PeerId peer) const override { return Of(peer).MappedRegions(peer); }
  absl::Status AddMemory(std::byte* data, size_t bytes, size_t grain) override;
  void RemoveMemory(const std::byte* data) override;
  std::map<std::string, uint64_t> counters() const override;
  bool Poll() override;
  int WaitFd() const override { return epoll_.get(); }
  bool AwaitsBulk() const override { return sockets_->AwaitsBulk() || fabric_->AwaitsBulk(); }
  void SetSpinning(bool spinning) override {
    sockets_->SetSpinning(spinning);
    fabric_->SetSpinning(spinning);
  }
  bool PrepareWait() override;

 private:
  JoinedTransport(std::unique_ptr<Transport> sockets, std::unique_ptr<Fabric> fabric)
      : sockets_(std::move(sockets)), fabric_(std::move(fabric)) {}
  Transport& Of(PeerId peer) const {
    return IsFabricPeer(peer) ? static_cast<Transport&>(*fabric_) : *sockets_;
  }
  std::unique_ptr<Transport> sockets_;
  std::unique_ptr<Fabric> fabric_;
  UniqueFd epoll_;
};

}  // namespace cistern
