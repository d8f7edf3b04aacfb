#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/loopback_network.h"
#include "transport/transport.h"

namespace cistern {

struct LoopbackOptions {
  std::string host;  // Faults and crashes are between hosts; one host may have several endpoints.
  std::vector<std::string> listen;  // Names others connect to: "node-1/0" is reached as "sim:node-1/0".
  bool one_sided = true;   // Pull works (like `map`); otherwise bytes come as payload (like `socket`).
  bool can_cancel = true;  // False: Cancel answers false, as a path that can only fence (UCX).
};

// One endpoint of a LoopbackNetwork. "sim:NAME", "tcp:NAME" and "unix:NAME" all connect to the endpoint that
// listens as NAME, so a cluster map may carry the name in any address field. Regions are mapped by their
// memfd as the real `map` path does: the memory of a crashed peer stays readable until this side hears of the
// crash. An accepted peer's put window is region kLoopbackWindowRegion. Owner: whoever owns the handler.
// Thread: the simulation's. Lifetime: shorter than the network's and the handler's.
class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(LoopbackNetwork& network, LoopbackOptions options);
  ~LoopbackTransport() override;

  void SetHandler(TransportHandler* handler) override { handler_ = handler; }
  absl::StatusOr<PeerId> Connect(const std::string& address, const ConnectOptions& options) override;
  absl::Status Send(PeerId peer, const OutFrame& frame) override;
  absl::Status Pull(PeerId peer, const PullRequest& request) override;
  bool Cancel(PeerId peer, uint64_t request_id) override;
  void Fence(PeerId peer, const absl::Status& why) override;
  const PeerPath* Path(PeerId peer) const override;
  bool Poll() override;
  int WaitFd() const override { return -1; }

  // True when Poll would hand something over.
  bool HasWork() const { return !inbox_.empty() || deferred_frames_ != 0; }
  const std::string& host() const { return options_.host; }
  size_t peers() const { return peers_.size(); }

 private:
  friend class LoopbackNetwork;
  using Event = LoopbackNetwork::Event;
  struct Peer;

  Peer* Find(PeerId peer);
  void Accept(uint32_t connection);
  void Deliver(Event& event);
  void FrameBegin(Peer& peer, Event& event);
  void FrameChunk(Peer& peer, Event& event);
  void FrameEnd(Peer& peer, Event& event);
  void PullEnd(Peer& peer, Event& event);
  void Handshake(Peer& peer, const FrameHeader& header, ByteView body);
  void OnHelloFrame(Peer& peer, ByteView body);
  absl::Status FlushDeferred(Peer& peer);
  // Takes the peer away and tells the handler, if it ever knew of it.
  void Down(PeerId id, const absl::Status& why);

  LoopbackNetwork& network_;
  LoopbackOptions options_;
  TransportHandler* handler_ = nullptr;
  bool crashed_ = false;
  PeerId next_peer_ = 1;
  std::unordered_map<PeerId, std::unique_ptr<Peer>> peers_;
  std::deque<std::unique_ptr<Event>> inbox_;
  size_t deferred_frames_ = 0;
};
inline constexpr uint32_t kLoopbackWindowRegion = 0;
inline constexpr size_t kLoopbackCancelledMax = 4096;  // Per peer; Cancel says false beyond.

}  // namespace cistern
