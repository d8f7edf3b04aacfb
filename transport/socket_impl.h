#pragma once

#include <sys/epoll.h>

#include <array>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/socket_address.h"
#include "transport/socket_counters.h"
#include "transport/socket_peer.h"
#include "transport/socket_transport.h"

namespace cistern {

// The works of SocketTransport: socket_transport.cc has what the owner calls, socket_poll.cc what Poll does,
// socket_handshake.cc how a connection becomes a peer, socket_ring.cc how frames go through shared memory.
//
// Callbacks run with no reader, writer or iterator on the stack. They may close any peer, also the one they
// are about: a closed peer moves to the graveyard, which is emptied when the outermost call returns.
class SocketTransport::Impl {
 public:
  Impl(Clock& clock, const SocketOptions& options) : clock_(clock), options_(options) {}
  absl::Status Open();

  absl::StatusOr<std::string> Listen(const std::string& address);
  absl::Status AddWakeFd(int fd);
  absl::StatusOr<PeerId> Connect(const std::string& address, const ConnectOptions& options);
  absl::Status Send(PeerId id, const OutFrame& frame);
  absl::Status Pull(PeerId id, const PullRequest& request);
  bool Cancel(PeerId id, uint64_t request_id);
  void Fence(PeerId id, const absl::Status& why);
  const PeerPath* Path(PeerId id) const;
  std::vector<ConstSegment> MappedRegions(PeerId id) const;
  bool AwaitsBulk() const { return writers_waiting_ > 0 || streams_ > 0; }
  void SetSpinning(bool spinning);
  bool Poll();

  void set_handler(TransportHandler* handler) { handler_ = handler; }
  int wait_fd() const { return epoll_.get(); }
  std::map<std::string, uint64_t> counters() const;
  size_t peer_count() const { return peers_.size(); }

 private:
  using State = SocketPeer::State;
  // So few peers are read without asking epoll first: one system call less for each frame. Every
  // kDirectRoundsMax rounds epoll is asked all the same, for listeners, handshakes, wakes and bells.
  static constexpr size_t kDirectPeersMax = 4;
  static constexpr int kDirectRoundsMax = 16;
  // A payload of which at least so much is still to come is a stream: its reader sleeps until
  // kStreamStepBytes are there, instead of asking again and again; a quarter of the receive buffer at most,
  // so that the sender goes on meanwhile. TCP on one host, 16 x 1 MiB, spinning: 4.06 GB a CPU-second
  // before, 4.5 to 4.8 with it, at .92 to .95 of the rate.
  static constexpr uint64_t kStreamBytesMin = 2u << 20;
  static constexpr int kStreamStepBytes = 512 << 10;
  static constexpr int kStreamStepsPerBuffer = 4;
  // What an epoll event is about, in the high half of its data.
  enum Tag : uint32_t { kPeerTag, kListenerTag, kWakeTag, kTimerTag, kForeignTag };
  struct Listener {
    UniqueFd fd;
    bool is_unix = false;
  };
  // Held by every entry from outside; the last one out empties the graveyard.
  class Inside {
   public:
    explicit Inside(Impl& impl) : impl_(impl) { ++impl_.depth_; }
    ~Inside() {
      if (--impl_.depth_ == 0) impl_.graveyard_.clear();
    }

   private:
    Impl& impl_;
  };

  // socket_transport.cc
  SocketPeer* Find(PeerId id) const;
  absl::StatusOr<SocketPeer*> Adopt(UniqueFd fd, bool accepted, bool is_unix);
  // Closes now and tells the handler if it is owed that.
  static absl::Status WithUser(const SocketPeer& peer, const absl::Status& why);
  void Down(SocketPeer& peer, const absl::Status& cause);
  // Has Poll call Down: for errors met where a callback would surprise.
  void Doom(SocketPeer& peer, absl::Status why);
  void Flush(SocketPeer& peer);
  void Watch(SocketPeer& peer, bool wants_write);
  void Wake();
  absl::Status AddToEpoll(int fd, Tag tag, uint32_t id, uint32_t events);

  // socket_poll.cc
  bool PollSockets();
  bool ServeDirectly();
  bool HandleEvent(const epoll_event& event);
  bool ServeRead(SocketPeer& peer);
  void SetStream(SocketPeer& peer, bool on);
  bool HandleReadEvent(SocketPeer& peer, FrameReader::Event event);
  void Handshake(SocketPeer& peer);
  void BeginPayload(SocketPeer& peer);
  void DeliverFrame(SocketPeer& peer);
  bool DeliverDeferred();
  bool FlushWaiting();
  void CloseBad(SocketPeer& peer, const absl::Status& why);
  void ScheduleCheck(Nanos at);
  void CheckDeadlines();
  void ArmTimer();

  // socket_handshake.cc
  bool Accept(size_t listener);
  bool AcceptOne(Listener& listener);
  bool MakeRoomForStranger();
  void ConnectDone(SocketPeer& peer);
  void SendHello(SocketPeer& peer);
  absl::Status CheckHeader(const SocketPeer& peer, const FrameHeader& header) const;
  void OnHelloFrame(SocketPeer& peer);
  absl::Status TakeWindow(SocketPeer& peer, Hello& hello);
  void SendAck(SocketPeer& peer, HelloAck& ack, const std::vector<const MemoryRegion*>& regions);
  void OnAckFrame(SocketPeer& peer);
  void SetMapped(SocketPeer& peer);
  void RefuseMap(SocketPeer& peer, const absl::Status& why);
  void Refuse(SocketPeer& peer, const absl::Status& why);

  // socket_ring.cc
  void OfferRing(SocketPeer& peer, HelloAck& ack, std::vector<int>& fds);
  absl::StatusOr<std::unique_ptr<SharedRing>> TakeRing(const SocketPeer& peer, HelloAck& ack,
                                                       std::vector<UniqueFd>& fds);
  void AnswerRing(SocketPeer& peer, absl::StatusOr<std::unique_ptr<SharedRing>> ring);
  void OnRingWord(SocketPeer& peer);
  void EnterRing(SocketPeer& peer);
  void RefuseRing(SocketPeer& peer, const absl::Status& why);
  bool ServeRings();
  bool ServeRing(SocketPeer& peer);
  bool HearBells(SocketPeer& peer);
  static void RingBell(const SocketPeer& peer);
  void AfterRingWrite(SocketPeer& peer, FrameWriter::Outcome outcome);
  void WakeForRings();

  Clock& clock_;
  const SocketOptions options_;
  TransportHandler* handler_ = nullptr;
  UniqueFd epoll_;
  UniqueFd wake_;   // Readable when Poll has work that no socket shows.
  UniqueFd timer_;  // Readable when a deadline may have passed.
  UniqueFd spare_;  // Given up for a moment to close what comes when descriptors have run out.
  std::vector<Listener> listeners_;
  struct alignas(kFrameAlignBytes) Scratch {
    std::array<std::byte, kReceiveScratchBytes + kFrameAlignBytes>
        bytes;  // A receive begins in the first ones.
  };
  const std::unique_ptr<Scratch> scratch_ = std::make_unique<Scratch>();
  // Of the standard library, as are the other tables that live on when an allocation fails: absl's are broken
  // by a growth that does.
  std::unordered_map<PeerId, std::unique_ptr<SocketPeer>> peers_;
  std::vector<std::unique_ptr<SocketPeer>> graveyard_;
  size_t writers_waiting_ = 0;    // Peers with wants_write.
  size_t streams_ = 0;            // Peers with in_stream.
  size_t rings_ = 0;              // Peers that have one, also those that have not entered it.
  std::vector<PeerId> ring_ids_;  // Peers that are in theirs.
  bool spinning_ = false;         // The owner polls again and again.
  PeerId next_id_ = 1;
  std::vector<PeerId> strangers_;  // Peers that are unauthenticated, oldest first.
  PeerId reading_ = 0;             // Its reader may have bytes in scratch_.
  int depth_ = 0;
  bool polling_ = false;
  bool awake_ = false;  // wake_ is readable.
  int direct_rounds_ = 0;
  Nanos next_check_ = kNever;
  std::vector<PeerId> unflushed_;
  std::vector<PeerId> doomed_;
  std::vector<std::pair<PeerId, uint64_t>> sent_;  // OnSent due.
  std::vector<uint64_t> cookies_;                  // Scratch of Flush.
  std::vector<PeerId> ids_;                        // Scratch of loops over peers.
  Bytes body_;                                     // Scratch for handshake bodies.
  SocketCounters counters_;
};

}  // namespace cistern
