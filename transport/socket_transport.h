#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "transport/transport.h"

namespace cistern {

// Accepted, HELLO not yet in. One more takes the place of the oldest that has nothing to say.
inline constexpr size_t kUnauthenticatedPeersMax = 64;
inline constexpr size_t kListenersMax = 8;  // Per transport.
inline constexpr Nanos kStalledSendMax =
    30 * kSecond;  // A peer that takes no byte of what waits for so long is closed.
inline constexpr uint32_t kHelloFrameBytesMax =
    2048;  // Body of the first frame of a peer that nobody knows yet.
inline constexpr size_t kCancelledRequestsMax =
    1024;                                    // Cancelled ids remembered per peer; Cancel says no above.
inline constexpr size_t kRingPeersMax = 64;  // Rings at a time: 32 MiB; further peers stay on their socket.

struct SocketOptions {
  std::string why = "socket";  // PeerPath::why of peers without a map.
  size_t peers_max = kPeersMax;
  int send_buffer_bytes = 0;     // SO_SNDBUF; 0: the kernel's own tuning.
  int receive_buffer_bytes = 0;  // SO_RCVBUF; 0: the kernel's own tuning.
  bool offer_rings = true;       // To peers that map our memory; accepting side.
};

// Frames over TCP and unix sockets, and on unix sockets, where both sides agree, one-sided reads of the
// peer's sealed memfds (`map`), with frames in a ring of shared memory. One class serves both sides: a node
// listens, a client connects.
//
// Owner: a shard or a client. Thread: the owner's, for every call and callback. Lifetime: must outlive its
// callbacks, is destroyed outside of them; destroying closes all peers without OnPeerDown.
//
// Callbacks may call anything here except the destructor. Between Send(flush = false) and going to sleep on
// WaitFd the owner has to call Poll once. OnSent never comes from inside Send.
class SocketTransport final : public Transport {
 public:
  static absl::StatusOr<std::unique_ptr<SocketTransport>> Create(Clock& clock,
                                                                 const SocketOptions& options = {});
  ~SocketTransport() override;
  SocketTransport(const SocketTransport&) = delete;
  SocketTransport& operator=(const SocketTransport&) = delete;

  // "tcp:HOST:PORT" (port 0: any free one) or "unix:NAME" (abstract name). Returns the address as bound, in
  // the same form, so that Connect takes it. HOST is a numeric address or "localhost". Unavailable when the
  // address is in use.
  absl::StatusOr<std::string> Listen(const std::string& address);
  // Makes WaitFd readable when `fd` is (a mailbox's eventfd). Its owner reads it; Poll does not.
  absl::Status AddWakeFd(int fd);

  void SetHandler(TransportHandler* handler) override;
  absl::StatusOr<PeerId> Connect(const std::string& address, const ConnectOptions& options) override;
  absl::Status Send(PeerId peer, const OutFrame& frame) override;
  absl::Status Pull(PeerId peer, const PullRequest& request) override;
  bool Cancel(PeerId peer, uint64_t request_id) override;
  void Fence(PeerId peer, const absl::Status& why) override;
  const PeerPath* Path(PeerId peer) const override;
  std::vector<ConstSegment> MappedRegions(PeerId peer) const override;
  bool Poll() override;
  bool AwaitsBulk() const override;
  int WaitFd() const override;
  void SetSpinning(bool spinning) override;

  // "bad_frames_total", "version_refused_total", "handshake_timeouts_total", ... Values so far.
  std::map<std::string, uint64_t> counters() const override;
  size_t peer_count() const;

 private:
  class Impl;
  explicit SocketTransport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cistern
