#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/random.h"
#include "transport/transport.h"

namespace cistern {

// One stored part of a FakeNode.
struct FakePart {
  BlockKey block;
  PartCoord coord;
  std::vector<std::byte> bytes;
  uint64_t generation = 2;
};

// One shard of a node behind a FakeTransport: enough of the protocol to answer a client truthfully, and
// switches to answer it otherwise. Test only; the caller's thread.
struct FakeNode {
  std::string id;
  uint64_t incarnation = 1;
  uint32_t shard = 0;
  uint32_t shards = 1;
  std::map<std::pair<BlockHash, uint32_t>, FakePart> parts;  // By hash and packed coord.
  std::map<uint64_t, std::vector<const FakePart*>> plans;
  std::map<uint64_t, FakePart> offered;  // By put id.
  uint64_t next_put = 1;

  bool refuse = false;        // Connections are refused at once.
  bool denies = false;        // ... because it does not take the ticket.
  bool silent = false;        // Accepts, then never says anything (a stopped process).
  bool hold = false;          // Replies are made but kept back.
  FrameType hold_type{};      // Replies of this type are kept back, others pass.
  bool newest_first = false;  // Of the replies that are there the newest goes out first.
  bool one_sided = true;
  uint32_t ttl_ms = 2000;
  std::map<FrameType, uint64_t> frames;  // Received, by type.
  uint64_t connects = 0;
  uint64_t pulls = 0;
  bool tells_detail = false;                  // Answers kFlagDetail, as nodes of this release do.
  uint32_t in_parts = UINT32_MAX;             // Blocks of one answer to who takes it in parts.
  std::set<BlockHash> tails;                  // Blocks that end at a whole tail, as it says.
  std::vector<NoteRequest> notes;             // Received.
  std::map<BlockHash, AgreeReply> decisions;  // By request.
  std::function<void(PlanReply&)> edit_plan;
  std::function<void(std::vector<std::byte>&)>
      edit_payload;  // Bytes of a reply, after the descriptors were made.
  std::function<void(PullResult&, std::vector<std::byte>&)> edit_pull;
  std::function<void(OfferReply&)> edit_offer;
  std::function<void(PutReply&)> edit_put;
  std::function<bool(FrameType)> answer_error;  // True: ERROR instead of a reply.

  const FakePart* Find(const BlockHash& hash, PartCoord coord) const {
    const auto it = parts.find({hash, coord.Packed()});
    return it == parts.end() ? nullptr : &it->second;
  }
  void Add(const BlockKey& block, PartCoord coord, std::vector<std::byte> bytes) {
    parts[{block.hash, coord.Packed()}] = {block, coord, std::move(bytes)};
  }
};

class FakeTransport final : public Transport {
 public:
  // Address "sim:ID/SHARD".
  std::map<std::string, FakeNode*> nodes;
  bool can_cancel = true;
  bool async_pulls = false;   // OnPulled comes from Poll, not from Pull.
  bool hold_pulls = false;    // ... and not before this is false again.
  uint32_t payload_step = 0;  // Not 0: payloads land in steps of so many bytes, one a Poll.
  uint64_t sends = 0;         // Frames with flush: what would have been a system call.
  uint64_t fences = 0;
  uint64_t cancels = 0;
  std::map<std::string, uint64_t> connect_calls;

  void SetHandler(TransportHandler* handler) override { handler_ = handler; }
  absl::StatusOr<PeerId> Connect(const std::string& address, const ConnectOptions& options) override;
  absl::Status Send(PeerId peer, const OutFrame& frame) override;
  absl::Status Pull(PeerId peer, const PullRequest& request) override;
  bool Cancel(PeerId peer, uint64_t request_id) override;
  void Fence(PeerId peer, const absl::Status& why) override;
  const PeerPath* Path(PeerId peer) const override;
  bool Poll() override;
  int WaitFd() const override { return -1; }

  void Drop(FakeNode& node);  // The network breaks the connections of a node.
  size_t peer_count() const { return peers_.size(); }
  bool HasInput() const;

 private:
  struct Reply {
    FrameHeader header;
    Bytes body;
    std::vector<std::byte> payload;
    // Landing.
    bool begun = false;
    bool drained = false;
    PayloadPlan plan;
    size_t landed = 0;
    size_t piece_at = 0;
    size_t in_piece = 0;
  };
  struct HeldPull {
    PullRequest request;
    std::vector<Segment> target;
  };
  struct Peer {
    PeerId id = 0;
    FakeNode* node = nullptr;
    bool up = false;
    PeerPath path;
    const MemoryRegion* window = nullptr;
    std::deque<Reply> replies;
    std::deque<HeldPull> pulls;
    std::deque<uint64_t> sent_cookies;
    std::vector<std::pair<FrameHeader, std::pair<Bytes, std::vector<ConstSegment>>>>
        puts;  // Inline payload not yet read.
    std::deque<uint64_t> put_cookies;
  };

  void Answer(Peer& peer, const FrameHeader& header, ByteView body);
  void SendReply(Peer& peer, const FrameHeader& header, FrameType type, Bytes body,
                 std::vector<std::byte> payload = {}, uint16_t flags = 0);
  void AnswerChain(Peer& peer, const FrameHeader& header, ByteView body);
  void AnswerRead(Peer& peer, const FrameHeader& header, ByteView body);
  void AnswerOffer(Peer& peer, const FrameHeader& header, ByteView body);
  void AnswerPut(Peer& peer, const FrameHeader& header, ByteView body,
                 absl::Span<const ConstSegment> payload);
  PartDescriptor Describe(const FakePart& part) const;
  void DoPull(Peer& peer, const PullRequest& request, absl::Span<const Segment> target);
  bool Deliver(PeerId id);
  bool Land(PeerId id, Reply& reply);

  TransportHandler* handler_ = nullptr;
  PeerId next_ = 1;
  std::map<PeerId, std::unique_ptr<Peer>> peers_;
  std::vector<std::pair<PeerId, absl::Status>> refused_;
};

}  // namespace cistern
