#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/ucx/bounce_pool.h"
#include "transport/ucx/op_pool.h"
#include "transport/ucx/ucx_context.h"
#include "transport/ucx/ucx_counters.h"
#include "transport/ucx/ucx_peer.h"
#include "transport/unique_fd.h"

namespace cistern {

inline constexpr unsigned kAmId = 7;                     // Of the one active message there is.
inline constexpr size_t kChunkBytes = 256u << 10;        // Of a payload, in one message: fits TX_SEG_SIZE.
inline constexpr uint32_t kChunksInFlightMax = 8;        // Of one sender to one peer.
inline constexpr size_t kInboundItemsMax = 4096;         // Messages of one peer that wait.
inline constexpr size_t kInboundBytesMax = 64u << 20;    // Their copied bytes.
inline constexpr size_t kDirectFragmentBytesMin = 4096;  // Shorter pieces are cheaper by way of a bounce.
inline constexpr size_t kUcxPullsMax = 4096;             // Under way on one transport; more wait their turn.
inline constexpr size_t kPendingConnectsMax = 64;        // Accepted, HELLO not yet in, or not yet looked at.
inline constexpr size_t kUcxCancelledMax = 1024;         // Cancelled ids remembered per peer.
inline constexpr Nanos kForcedCloseMax = 10 * kSecond;

// Frames, and reads of a peer's registered memory, over UCX. ucx_transport.cc has what the owner calls and
// what Poll does, ucx_connect.cc how a connection comes and goes, ucx_handshake.cc how it becomes a peer,
// ucx_send.cc and ucx_receive.cc frames, ucx_pull.cc one-sided reads.
//
// Owner: a shard or a client. Thread: the owner's, or several that take turns (FabricThreads). Lifetime: must
// outlive its callbacks, is destroyed outside of them; destroying closes all peers without OnPeerDown.
//
// UCX calls back inside ucp_worker_progress and inside some of its functions: those callbacks only enqueue.
// The handler is called with nothing of UCX on the stack; it may call anything here, also close the peer that
// the call is about. A closed peer moves to the graveyard, which is emptied when the outermost call returns.
class UcxTransport final : public Fabric {
 public:
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(std::shared_ptr<UcxContext> context,
                                                              Clock& clock, FabricThreads threads);
  ~UcxTransport() override;
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  absl::StatusOr<std::string> Listen(const std::string& address) override;
  absl::Status AddMemory(std::byte* data, size_t bytes, size_t grain) override;
  void RemoveMemory(const std::byte* data) override;
  void SetHandler(TransportHandler* handler) override { handler_ = handler; }
  absl::StatusOr<PeerId> Connect(const std::string& address, const ConnectOptions& options) override;
  absl::Status Send(PeerId id, const OutFrame& frame) override;
  absl::Status Pull(PeerId id, const PullRequest& request) override;
  bool Cancel(PeerId id, uint64_t request_id) override;
  bool CancelPull(PeerId id, uint64_t pull_id) override;
  void Fence(PeerId id, const absl::Status& why) override;
  const PeerPath* Path(PeerId id) const override;
  bool Poll() override;
  int WaitFd() const override { return epoll_.get(); }
  bool PrepareWait() override;
  std::map<std::string, uint64_t> counters() const override;

  size_t peer_count() const { return peers_.size(); }
  // Operations that UCX holds a pointer to, and those of dead peers that it never ended.
  size_t operations() const { return send_pool_.in_use() + inbound_pool_.in_use() + pull_pool_.in_use(); }
  const Registrations& registrations() const { return registrations_; }

 private:
  UcxTransport(std::shared_ptr<UcxContext> context, Clock& clock)
      : clock_(clock), context_(std::move(context)), registrations_(*context_, RegistrationLimits{}) {}
  absl::Status Open(FabricThreads threads);

  using State = UcxPeer::State;
  // Held by every entry from outside; the last one out empties the graveyard.
  class Inside {
   public:
    explicit Inside(UcxTransport& transport) : transport_(transport) { ++transport_.depth_; }
    ~Inside() {
      if (--transport_.depth_ == 0) transport_.graveyard_.clear();
    }

   private:
    UcxTransport& transport_;
  };

  // ucx_transport.cc
  UcxPeer* Find(PeerId id) const;
  bool Progress();
  bool DeliverDeferred();
  void Wake();
  void ArmTimer();
  void CheckDeadlines();

  // ucx_connect.cc
  absl::StatusOr<UcxPeer*> NewPeer(bool accepted);
  absl::Status OpenEndpoint(UcxPeer& peer, ucp_ep_params_t& params);
  bool AcceptPending();
  bool HandleFailed();
  void Down(UcxPeer& peer, const absl::Status& why);
  void Doom(UcxPeer& peer, absl::Status why);
  void CloseBad(UcxPeer& peer, const absl::Status& why);
  void CloseEndpoint(UcxPeer& peer);
  void LetGo(UcxPeer& peer);
  static void OnConnect(ucp_conn_request_h request, void* transport) noexcept;
  static void OnError(void* peer, ucp_ep_h ep, ucs_status_t status) noexcept;

  // ucx_handshake.cc
  void QueueHello(UcxPeer& peer);
  void OnHelloFrame(UcxPeer& peer, const FrameHeader& header, ByteView body, ByteView extra);
  void SendAck(UcxPeer& peer, HelloAck& ack, const std::vector<const MemoryRegion*>& regions);
  void OnAckFrame(UcxPeer& peer, const FrameHeader& header, ByteView body, ByteView extra);
  void Refuse(UcxPeer& peer, const absl::Status& why);
  absl::Status Announce(uint32_t id, const MemoryRegion& memory, Announcement& out);
  absl::Status TakeAnnouncement(UcxPeer& peer, ByteView extra, const std::vector<RegionInfo>& wanted);
  bool FillPath(UcxPeer& peer);
  bool MayReadOneSided(bool rdma) const;

  // ucx_send.cc
  void Queue(UcxPeer& peer, const OutFrame& frame, ByteView extra);
  static void Fill(Outgoing& outgoing, const UcxPeer& peer, const OutFrame& frame, ByteView extra);
  bool PostWaiting();
  void Post(UcxPeer& peer);
  bool PostFrame(UcxPeer& peer, Outgoing& outgoing);
  bool PostChunk(UcxPeer& peer, Outgoing& outgoing);
  bool Give(UcxPeer& peer, SendOp* op, const void* header, size_t header_bytes, const void* data,
            size_t bytes);
  void WantPost(UcxPeer& peer);
  void SendEnded(SendOp* op, ucs_status_t status);
  void EndOutgoing(Outgoing* outgoing);
  static void OnSendDone(void* request, ucs_status_t status, void* op) noexcept;

  // ucx_receive.cc
  ucs_status_t Arrived(const void* header, size_t header_bytes, const void* data, size_t bytes,
                       const ucp_am_recv_param_t* param);
  bool DeliverAll();
  bool Deliver(UcxPeer& peer);
  void WantDeliver(UcxPeer& peer);
  void DeliverFrame(UcxPeer& peer, Inbound& item);
  absl::Status TakeChunk(UcxPeer& peer, const std::byte* data, size_t bytes);
  void HandleFrame(UcxPeer& peer, const FrameHeader& header, ByteView body);
  void BeginPayload(UcxPeer& peer, const FrameHeader& header, ByteView body);
  void EndPayload(UcxPeer& peer);
  void Land(UcxPeer& peer, const std::byte* data, size_t bytes);
  static ucs_status_t OnMessage(void* transport, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param) noexcept;

  // ucx_pull.cc
  void PlanFragments(PullOp& pull, uint64_t offset);
  void PostFragments(PullOp& pull);
  void PostTrailer(PullOp& pull);
  bool GetInto(PullOp& pull, uint64_t offset, size_t bytes, std::byte* to, void* user_data,
               ucp_send_nbx_callback_t callback);
  bool AdvancePulls();
  void AdvancePull(PullOp& pull);
  void LandFragment(PullOp& pull, Fragment& fragment);
  void EndPull(PullOp& pull, const PullResult& result);
  void FreePull(PullOp& pull);
  void WantAdvance(PullOp& pull);
  static void OnGot(void* request, ucs_status_t status, void* fragment) noexcept;
  static void OnTrailer(void* request, ucs_status_t status, void* pull) noexcept;

  Clock& clock_;
  TransportHandler* handler_ = nullptr;
  std::shared_ptr<UcxContext> context_;       // Owners: the process's transports.
  Registrations registrations_;               // Hangs on context_.
  std::unique_ptr<BouncePool> bounce_;        // Hangs on registrations_.
  std::vector<const MemoryRegion*> windows_;  // Put windows that Connect registered.
  UniqueFd epoll_, wake_, timer_;
  ucp_worker_h worker_ = nullptr;
  std::vector<ucp_listener_h> listeners_;
  OpPool<Outgoing> outgoing_pool_;
  OpPool<SendOp> send_pool_;
  OpPool<Inbound> inbound_pool_;
  OpPool<PullOp> pull_pool_;

  std::unordered_map<PeerId, std::unique_ptr<UcxPeer>>
      peers_;  // Whole when an allocation fails, like the next.
  std::unordered_map<ucp_ep_h, UcxPeer*> by_endpoint_;
  std::vector<std::unique_ptr<UcxPeer>> graveyard_;
  PeerId next_id_ = kFabricPeerBit | 1;
  size_t unauthenticated_ = 0;
  int depth_ = 0;
  bool polling_ = false;
  uint32_t quiet_polls_ = 0;
  bool awake_ = false;  // wake_ is readable.
  Nanos next_check_ = kNever;
  std::vector<ucp_conn_request_h> pending_;              // Not looked at yet.
  std::vector<std::pair<PeerId, ucs_status_t>> failed_;  // UCX gave their endpoints up.
  std::vector<PeerId> doomed_, unposted_, readable_;
  std::vector<PullOp*> pulls_due_;                 // Something of them has come.
  std::deque<PullOp*> pulls_waiting_;              // For a bounce buffer.
  std::vector<std::pair<PeerId, uint64_t>> sent_;  // OnSent due.
  std::vector<PeerId> ids_;                        // Scratch.
  Bytes body_, extra_;                             // Scratch of handshakes.
  UcxCounters counters_;
};

}  // namespace cistern
