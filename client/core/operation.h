#pragma once

#include <cstdint>
#include <vector>

#include "client/core/client_types.h"
#include "client/core/request_table.h"
#include "client/host_share.h"
#include "core/placement.h"
#include "transport/messages.h"

// The pooled state of one call. Vectors keep their capacity from call to call, so a warm call allocates
// nothing. Owner: the core. One thread.
namespace cistern {

enum class OpKind : uint8_t { kNone, kLookup, kPlan, kLoad, kFetch, kStore, kAdmin, kRecheck };

// Consecutive blocks of one run that one ask names.
struct Piece {
  uint32_t run = 0;
  uint32_t first = 0;  // Block in the chain.
  uint32_t count = 0;
  uint32_t got = 0;  // Leading blocks that the peer has ...
  uint32_t at = 0;   // ... and where they begin among those of its answer.
};

// A run while its owner is looked for: the current one first, then those of older maps.
struct RunState {
  Run run;
  uint32_t have = 0;   // Leading blocks found.
  uint8_t level = 0;   // Owner set to ask next.
  uint8_t tried = 0;   // Bits of levels that have given their answer.
  bool ended = false;  // Nobody else to ask.
  PartResult why = PartResult::kMiss;
  MissReason reason = MissReason::kNeverSeen;
};

// What a peer answered to a plan: leased parts, reachable through one connection alone.
struct PartSet {
  uint32_t peer = 0;
  uint64_t serial = 0;    // Of the peer: its slot may have got another one since.
  PeerId connection = 0;  // The one that granted the lease; no other may use it.
  uint64_t plan_id = 0;   // 0: nothing to release.
  Nanos lease_end = 0;
  Nanos ttl = 0;
  bool renewing = false;
  bool inlined = false;  // The bytes came with the reply.
  bool more = false;     // What follows the hit is on its way from a slower tier: ask again.
  PlanReply reply;
};

enum class AskState : uint8_t { kWaiting, kRequested, kAnswered, kDone };

// One request for pieces of the chain (LOOKUP, PLAN, OFFER), or one READ of Operation::reads
// [first_transfer, +transfers).
struct Ask {
  AskState state = AskState::kWaiting;
  PartResult failure = PartResult::kOk;
  uint32_t first_piece = 0;
  uint32_t pieces = 0;
  uint32_t blocks = 0;
  uint64_t bytes = 0;
  uint32_t first_transfer = 0;
  uint32_t transfers = 0;
  uint32_t first_put = 0;  // Puts [first_put, first_put + puts_left) are still to be sent, the deepest first.
  uint32_t puts_left = 0;
  uint64_t put_bytes_open = 0;
  // The deepest part not sent yet, where it is too big for one Poll.
  uint64_t summed_bytes = 0;  // How much of it is checksummed, and copied where it has a chunk.
  uint32_t summed_crc = 0;
  int32_t chunk = -1;  // Of the next PUT, until that is made.
  PartSet set;
  OfferReply offer;
};

// One part on its way into a page.
struct Transfer {
  uint32_t set = 0;   // Ask of this operation, or set of its plan.
  uint32_t part = 0;  // In the set's reply.
  uint32_t page = 0;
  uint32_t coord = 0;  // Index of the part in the page.
};

// One part on its way out of a page.
struct PutPart {
  uint32_t ask = 0;
  uint32_t page = 0;
  uint32_t coord = 0;
  uint64_t put_id = 0;
};
// One PUT frame: parts [first, first + count) of Operation::puts, all of one ask.
struct PutFrame {
  uint32_t first = 0;
  uint32_t count = 0;
  uint32_t ask = 0;
  uint64_t bytes = 0;
};

struct PageState {
  PartResult worst = PartResult::kOk;
  uint32_t ok_parts = 0;
  uint32_t exists_parts = 0;
};

// Parts of blocks [0, blocks) of a chain, leased by their owners. Pooled; freed when released and no Load
// uses it.
struct PlanState {
  PlanHandle handle = 0;
  ChainView chain;
  std::vector<PartCoord> coords;
  std::vector<uint32_t> coord_bytes;  // As in CallSpec.
  uint32_t first = 0;                 // Blocks before it are not in the plan.
  uint32_t blocks = 0;
  struct Where {
    uint32_t set = 0;
    uint32_t block = 0;  // Index in the set.
  };
  std::vector<Where> where;   // Per block.
  std::vector<PartSet> sets;  // The first `set_count` are live.
  uint32_t set_count = 0;
  uint32_t users = 0;  // Loads under way.
  bool released = false;
  uint32_t slot = 0;
};

struct Operation {
  OpId id = 0;
  uint32_t slot = 0;
  OpKind kind = OpKind::kNone;
  CallScope call;      // id 0: it is one by itself.
  bool dirty = false;  // Kept by Reset, as `again`: the list still has it.
  bool again = false;
  bool broken = false;  // Ran out of memory in the middle of a step.
  bool completed = false;
  bool started = false;  // Finding has begun; a Fetch that follows another one waits with it.
  bool found = false;    // The hit's length is known.
  bool ending = false;   // Deadline or cancel: nothing more is begun ...
  PartResult end_reason = PartResult::kDeadline;  // ... and what had not arrived gets this.
  absl::Status status;
  ChainView chain;
  std::vector<PartCoord> coords;
  std::vector<uint32_t> coord_bytes;  // Empty: one size.
  std::vector<uint64_t> part_at;      // Where each of `coords` begins in a page, and the page's end.
  uint32_t tail_parts = 0;
  bool junction = false;
  Retention retention;
  Nanos deadline_at = 0;
  Nanos renew_at = kNever;
  bool probe = false;

  // Finding.
  uint32_t limit = 0;  // Blocks [first, limit) are asked for.
  uint32_t first = 0;  // Store and Load: block of page 0.
  uint32_t bound = 0;  // No hit reaches further.
  uint32_t rounds = 0;
  uint32_t hit = 0;
  PartResult stopped_by = PartResult::kOk;
  MissReason why = MissReason::kNone;
  std::vector<uint64_t> tails;  // Bit i: the tail at the end of block i is whole.
  std::vector<Run> run_list;
  std::vector<RunState> runs;
  std::vector<Piece> pieces;
  std::vector<Ask> asks;  // The first `ask_count` are live.
  uint32_t ask_count = 0;
  uint32_t round_first = 0;  // First ask of the round under way.
  uint32_t asks_open = 0;    // Requested, not yet answered.

  // Moving.
  PlanState* plan = nullptr;
  std::vector<Segment> segments;
  std::vector<ConstSegment> const_segments;
  std::vector<uint32_t> ends;
  std::vector<PageState> pages;
  std::vector<PartResult> results;
  std::vector<Transfer> transfers;  // One-sided reads.
  std::vector<Transfer> reads;      // Parts that READ replies bring.
  uint32_t next_transfer = 0;
  uint32_t transfers_open = 0;
  // Load: what other ranks of this host load too (core_share.cc).
  struct Awaited {
    Transfer transfer;
    HostShare::Place place;
  };
  std::vector<uint8_t> shared;  // By part of a page; empty: nothing.
  std::vector<Awaited> awaited;
  std::vector<HostShare::Place> claims;  // By page and part; empty: none.
  Nanos look_at = kNever;                // At what is awaited.
  Nanos share_quiet_until = 0;
  Nanos share_end = 0;
  std::vector<PutPart> puts;
  std::vector<PutFrame> put_frames;
  uint32_t put_frames_open = 0;
  uint32_t put_turn = 0;    // The ask whose parts are sent next.
  bool put_queued = false;  // Kept by Reset: the queue still has it.
  uint64_t bytes = 0;

  // Admin.
  FrameType admin_type{};
  uint32_t admin_peer = 0;
  Bytes admin_body;  // Request, then reply.
  PartResult admin_result = PartResult::kOk;

  Operation* leader = nullptr;  // The Fetch of the same blocks whose pages this one will copy.
  std::vector<Operation*> followers;

  std::vector<Request*> requests;  // Waiting or sent.

  LookupDone lookup_done;
  PlanDone plan_done;
  LoadDone load_done;
  StoreDone store_done;
  AdminDone admin_done;

  uint32_t page_count() const { return static_cast<uint32_t>(ends.size()); }
  uint64_t BlockBytes() const { return part_at.back(); }
  uint64_t PartAt(uint32_t coord) const { return part_at[coord]; }
  uint32_t PartBytes(uint32_t coord) const {
    return coord_bytes.empty() ? chain.part_bytes : coord_bytes[coord];
  }
  void SetParts(absl::Span<const PartCoord> wanted, absl::Span<const uint32_t> sizes);
  PartSet& SetAt(uint32_t i) { return plan != nullptr ? plan->sets[i] : asks[i].set; }
  absl::Span<const Segment> PageSegments(uint32_t page) const {
    const uint32_t begin = page == 0 ? 0 : ends[page - 1];
    return absl::MakeConstSpan(segments).subspan(begin, ends[page] - begin);
  }
  absl::Span<const ConstSegment> ConstPageSegments(uint32_t page) const {
    const uint32_t begin = page == 0 ? 0 : ends[page - 1];
    return absl::MakeConstSpan(const_segments).subspan(begin, ends[page] - begin);
  }
  Ask& AddAsk() {
    if (ask_count == asks.size()) asks.emplace_back();
    Ask& ask = asks[ask_count++];
    ask.state = AskState::kWaiting;
    ask.failure = PartResult::kOk;
    ask.pieces = ask.blocks = ask.transfers = ask.puts_left = 0;
    ask.bytes = ask.put_bytes_open = ask.summed_bytes = 0;
    ask.summed_crc = 0;
    ask.chunk = -1;
    PartSet& set = ask.set;
    set.connection = 0;
    set.plan_id = 0;
    set.lease_end = 0;
    set.renewing = set.inlined = false;
    set.reply.hit_blocks = 0;
    set.reply.detail.present = false;
    set.reply.detail.tails.clear();
    set.reply.parts.clear();
    return ask;
  }
  void Reset();
};

// Walks the parts of an ask's reply and tells each one's place: block-major over the ask's pieces for a PLAN,
// the listed transfers for a READ.
class PartWalk {
 public:
  PartWalk(const Operation& op, const Ask& ask, bool read)
      : op_(op), ask_(ask), read_(read), piece_(ask.first_piece) {}
  void Next() {
    if (read_) {
      const Transfer& transfer = op_.reads[ask_.first_transfer + at_++];
      page = transfer.page;
      coord = transfer.coord;
      return;
    }
    const auto coords = static_cast<uint32_t>(op_.coords.size());
    page = op_.pieces[piece_].first + block_ - op_.first;
    coord = at_ % coords;
    ++at_;
    if (coord + 1 != coords) return;
    if (++block_ == op_.pieces[piece_].count) ++piece_, block_ = 0;
  }
  uint32_t page = 0;
  uint32_t coord = 0;

 private:
  const Operation& op_;
  const Ask& ask_;
  bool read_;
  uint32_t at_ = 0;
  uint32_t piece_;
  uint32_t block_ = 0;  // In the piece.
};

// Takes over the parts of a block; call it with the chain set.
inline void Operation::SetParts(absl::Span<const PartCoord> wanted, absl::Span<const uint32_t> sizes) {
  coords.assign(wanted.begin(), wanted.end());
  coord_bytes.assign(sizes.begin(), sizes.end());
  part_at.assign(1, 0);
  for (uint32_t c = 0; c < coords.size(); ++c) part_at.push_back(part_at.back() + PartBytes(c));
}

inline void Operation::Reset() {
  kind = OpKind::kNone;
  call = {};
  broken = completed = started = found = ending = probe = false;
  status = absl::OkStatus();
  chain.blocks = {};
  chain.keep.reset();
  SetParts({}, {});
  tail_parts = 0;
  junction = false;
  retention = {};
  why = MissReason::kNone;
  tails.clear();
  renew_at = kNever;
  limit = first = bound = rounds = hit = 0;
  stopped_by = PartResult::kOk;
  runs.clear();
  pieces.clear();
  ask_count = round_first = asks_open = put_turn = 0;
  plan = nullptr;
  leader = nullptr;
  followers.clear();
  segments.clear();
  const_segments.clear();
  ends.clear();
  pages.clear();
  results.clear();
  transfers.clear();
  reads.clear();
  next_transfer = transfers_open = 0;
  shared.clear();
  awaited.clear();
  claims.clear();
  look_at = kNever;
  puts.clear();
  put_frames.clear();
  put_frames_open = 0;
  bytes = 0;
  admin_body.clear();
  admin_result = PartResult::kOk;
}

}  // namespace cistern
