#include <algorithm>
#include <utility>

#include "client/core/client_core_impl.h"

// Finding a chain: runs are asked of their owners, all owners at once; a run that its owner lacks is asked of
// the owners of older maps in the next round. The hit ends at the first block that nobody has.
namespace cistern {
namespace {

MissReason ReasonOf(PartResult result) {
  switch (result) {
    case PartResult::kOk:
    case PartResult::kExists:
      return MissReason::kNone;
    case PartResult::kMiss:
      return MissReason::kNeverSeen;
    case PartResult::kLayout:
      return MissReason::kLayout;
    case PartResult::kDenied:
      return MissReason::kTenant;
    default:
      return MissReason::kUnreachable;
  }
}

}  // namespace

void ClientCore::Impl::StartFind(Operation& op) {
  Advance(op);
  Pump();
}

void ClientCore::Impl::BeginFind(Operation& op) {
  op.bound = op.limit;
  CutRuns(op.limit, std::max(peers_.map().run_blocks_cap, 1u), op.run_list);
  op.runs.clear();  // Of a beginning that ran out of memory.
  for (const Run& run : op.run_list) {
    // What lies before the first block asked for counts as found.
    const uint32_t before = std::min(std::max(op.first, run.first) - run.first, run.count);
    op.runs.push_back({.run = run, .have = before});
  }
  counters_.lookup_blocks += op.probe ? 0 : op.limit - op.first;
  op.started = true;
  BuildRound(op);
}

// Turns the run to an owner set that has not answered yet and names another peer than those that have.
bool ClientCore::Impl::TryOtherLevel(const Operation& op, RunState& run) {
  const auto levels = static_cast<uint8_t>(peers_.levels());  // 1 + kOpenMovesMax at most.
  if (levels <= 1) return false;
  const BlockHash& key = op.chain.blocks[run.run.first].hash;
  const uint32_t asked = peers_.PeerFor(run.level, key);
  for (uint8_t level = 0; level < levels; ++level) {
    if (level == run.level || (run.tried >> level & 1)) continue;
    const uint32_t slot = peers_.PeerFor(level, key);
    bool known = slot == kNoPeer || slot == asked;
    for (uint8_t other = 0; other < levels && !known; ++other) {
      known = (run.tried >> other & 1) && peers_.PeerFor(other, key) == slot;
    }
    if (known) continue;
    run.level = level;
    return true;
  }
  return false;
}

// The run's blocks behind `have` are nowhere, as far as this level goes.
void ClientCore::Impl::Miss(RunState& run, PartResult why, Operation& op) {
  if (why != PartResult::kMiss || run.reason == MissReason::kNone) run.reason = ReasonOf(why);
  run.tried |= static_cast<uint8_t>(1u << run.level);
  run.why = run.tried == (1u << run.level) ? why : WorseOf(run.why, why);
  if (TryOtherLevel(op, run)) return;
  run.ended = true;
  op.bound = std::min(op.bound, run.run.first + run.have);
}

void ClientCore::Impl::AddPiece(Operation& op, const Piece& piece, uint32_t slot) {
  ClientPeer& peer = *peers_.Get(slot);
  const uint64_t bytes = piece.count * op.BlockBytes();
  const uint64_t parts = uint64_t{piece.count} * op.coords.size();
  if (peer.round_stamp == round_stamp_) {
    Ask& ask = op.asks[peer.round_ask];
    const bool inlined = op.kind == OpKind::kFetch && !peer.one_sided;
    if ((!inlined || ask.bytes + bytes <= kInlineAskBytesMax) &&
        ask.blocks + piece.count <= kBlocksPerRequestMax &&
        ask.blocks * op.coords.size() + parts <= kPartsPerAskMax) {
      ++ask.pieces;
      ask.blocks += piece.count;
      ask.bytes += bytes;
      return;
    }
  }
  peer.round_stamp = round_stamp_;
  peer.round_ask = op.ask_count;
  Ask& ask = op.AddAsk();
  ask.pieces = 1;
  ask.blocks = piece.count;
  ask.bytes = bytes;
  ask.set.peer = slot;
  ask.set.serial = peer.serial;
}

// Lists pieces for every run that is still open, grouped by peer. False: nothing is left to ask.
bool ClientCore::Impl::BuildRound(Operation& op) {
  op.round_first = op.ask_count;
  if (op.ending || op.rounds++ == kRoundsMax) return false;
  try {
    ListAsks(op);
  } catch (...) {  // Half a list is none.
    op.ask_count = op.round_first;
    throw;
  }
  return op.ask_count > op.round_first;
}

void ClientCore::Impl::ListAsks(Operation& op) {
  ++round_stamp_;
  // An ask needs its pieces side by side: collected per ask first, laid out after.
  round_pieces_.clear();
  const auto coords = static_cast<uint32_t>(op.coords.size());
  const uint32_t piece_blocks_max = std::max<uint32_t>(1, kPartsPerAskMax / coords);
  for (uint32_t i = 0; i < op.runs.size(); ++i) {
    RunState& run = op.runs[i];
    const uint32_t end = std::min(run.run.first + run.run.count, op.limit);
    uint32_t from = std::max(run.run.first + run.have, op.first);
    if (run.ended || from >= end || from >= op.bound) continue;
    uint32_t slot = kNoPeer;
    while (!run.ended && (slot = peers_.PeerFor(run.level, op.chain.blocks[run.run.first].hash)) == kNoPeer) {
      if (op.kind != OpKind::kStore)
        Miss(run, PartResult::kPeerGone, op);
      else
        run.ended = true, run.why = PartResult::kPeerGone;  // Only the current owner takes new parts.
    }
    if (run.ended) continue;
    if (run.level != 0) ++counters_.old_owner_asks;
    while (from < end) {
      // Only a payload bound may cut a run: then its pieces go out in order, one behind the other.
      uint32_t count = std::min(end - from, piece_blocks_max);
      if (op.kind == OpKind::kFetch && op.BlockBytes() * count > kInlineAskBytesMax) {
        count = std::max<uint32_t>(1, static_cast<uint32_t>(kInlineAskBytesMax / op.BlockBytes()));
      }
      AddPiece(op, {i, from, count, 0}, slot);
      round_pieces_.push_back({peers_.Get(slot)->round_ask, {i, from, count, 0}});
      from += count;
    }
  }
  std::sort(round_pieces_.begin(), round_pieces_.end(), [](const RoundPiece& a, const RoundPiece& b) {
    return a.ask != b.ask ? a.ask < b.ask : a.piece.first < b.piece.first;
  });
  uint32_t last_ask = UINT32_MAX;
  for (const RoundPiece& p : round_pieces_) {
    if (p.ask != last_ask) op.asks[p.ask].first_piece = static_cast<uint32_t>(op.pieces.size());
    last_ask = p.ask;
    op.pieces.push_back(p.piece);
  }
}

void ClientCore::Impl::AdvanceFind(Operation& op) {
  if (op.leader != nullptr) {
    if (op.ending) LeaveFlight(op);
    return;
  }
  if (!op.started) BeginFind(op);
  while (!op.found) {
    if (ApplyNext(op)) continue;
    PumpAsks(op);
    if (ApplyNext(op)) continue;
    bool open = op.asks_open != 0;
    for (uint32_t i = op.round_first; i < op.ask_count && !open; ++i)
      open = op.asks[i].state == AskState::kWaiting;
    if (open) break;
    if (!BuildRound(op)) FinishFind(op);
  }
  if (op.kind == OpKind::kFetch) {
    PumpTransfers(op);
    if (op.found && op.transfers_open == 0 && op.next_transfer == op.transfers.size()) FinishPages(op);
  } else if (op.found) {
    Complete(op);
  }
}

// Sends what may be sent. An ask that ends here is kAnswered with its failure.
void ClientCore::Impl::PumpAsks(Operation& op) {
  const FrameType type = op.kind == OpKind::kLookup  ? FrameType::kLookup
                         : op.kind == OpKind::kStore ? FrameType::kOffer
                                                     : FrameType::kPlan;
  for (uint32_t i = op.round_first; i < op.ask_count; ++i) {
    Ask& ask = op.asks[i];
    if (ask.state != AskState::kWaiting) continue;
    if (op.ending || op.pieces[ask.first_piece].first >= op.bound) {
      ask.failure = op.ending ? op.end_reason : PartResult::kMiss;
      ask.state = AskState::kAnswered;
      continue;
    }
    if (op.asks_open >= kInlineAsksInFlightMax && ask.bytes != 0 && op.kind == OpKind::kFetch &&
        WindowFull(op, ask))
      continue;
    ClientPeer* peer = peers_.Get(ask.set.peer);
    ask.failure = peer == nullptr || peer->serial != ask.set.serial || !peer->listed ? PartResult::kPeerGone
                                                                                     : Admit(*peer);
    Request* request =
        ask.failure == PartResult::kOk ? NewRequest(&op, type, i, *peer, clock_.Now()) : nullptr;
    if (request == nullptr) {
      if (ask.failure == PartResult::kOk) ask.failure = PartResult::kBusy;
      ask.state = AskState::kAnswered;
      continue;
    }
    ask.state = AskState::kRequested;
    ++op.asks_open;
    if (peer->state == PeerState::kUp) Transmit(*request);
  }
}

bool ClientCore::Impl::WindowFull(const Operation& op, const Ask& ask) const {
  uint32_t open = 0;
  for (uint32_t i = op.round_first; i < op.ask_count; ++i) {
    open += op.asks[i].state == AskState::kRequested && op.asks[i].set.peer == ask.set.peer;
  }
  return open >= kInlineAsksInFlightMax;
}

// Notes which boundaries of the chain have whole tails.
void ClientCore::Impl::TakeDetail(Operation& op, const Ask& ask) {
  const std::vector<uint64_t>& tails = ask.set.reply.detail.tails;
  uint32_t at = 0;  // In the request.
  for (uint32_t i = ask.first_piece; i < ask.first_piece + ask.pieces; ++i) {
    const Piece& piece = op.pieces[i];
    for (uint32_t block = piece.first; block < piece.first + piece.count; ++block, ++at) {
      if (at / 64 >= tails.size()) return;
      if ((tails[at / 64] >> (at % 64) & 1) == 0) continue;
      if (op.tails.size() <= block / 64) op.tails.resize(block / 64 + 1);
      op.tails[block / 64] |= uint64_t{1} << (block % 64);
    }
  }
}

// Applies an answer that has come. Those about one run wait for each other: a node may be slower with the
// first.
bool ClientCore::Impl::ApplyNext(Operation& op) {
  for (uint32_t i = op.round_first; i < op.ask_count; ++i) {
    if (op.asks[i].state != AskState::kAnswered || IsBehindOpen(op, i)) continue;
    op.asks[i].state = AskState::kDone;
    ApplyAnswer(op, i);
    return true;
  }
  return false;
}

// Whether an ask goes on with a run whose part before it is not answered yet.
bool ClientCore::Impl::IsBehindOpen(const Operation& op, uint32_t index) {
  const Piece& first = op.pieces[op.asks[index].first_piece];
  const RunState& run = op.runs[first.run];
  if (run.ended || run.run.first + run.have >= first.first) return false;
  for (uint32_t i = op.round_first; i < index; ++i) {
    const Ask& ask = op.asks[i];
    if (ask.state != AskState::kDone && op.pieces[ask.first_piece + ask.pieces - 1].run == first.run)
      return true;
  }
  return false;
}

// Spreads an ask's answer over its runs.
void ClientCore::Impl::ApplyAnswer(Operation& op, uint32_t index) {
  Ask& ask = op.asks[index];
  uint32_t left = ask.failure == PartResult::kOk ? ask.set.reply.hit_blocks : 0;
  if (left != 0 && !ask.set.reply.detail.tails.empty()) TakeDetail(op, ask);
  const PartResult why = ask.failure != PartResult::kOk ? ask.failure : ask.set.reply.stopped_by;
  const bool more = ask.failure == PartResult::kOk && ask.set.more;
  bool stopped = false;
  uint32_t at = 0;
  for (uint32_t i = ask.first_piece; i < ask.first_piece + ask.pieces; ++i) {
    Piece& piece = op.pieces[i];
    RunState& run = op.runs[piece.run];
    const uint32_t here = std::min(left, piece.count);
    piece.at = std::exchange(at, at + here);
    left -= here;
    if (run.ended || run.run.first + run.have != piece.first) {  // An earlier piece of the run is missing.
      // It is asked for again with that; its bytes may have come with this answer.
      for (uint32_t b = 0; b < here && ask.set.inlined; ++b) op.pages[piece.first + b - op.first] = {};
      continue;
    }
    piece.got = here;
    run.have = piece.first + piece.got - run.run.first;
    if (piece.got == piece.count || more) continue;  // More is on its way: the next round asks for it there.
    if (!stopped || ask.failure != PartResult::kOk) {
      stopped = true;
      run.reason = ask.failure == PartResult::kOk && ask.set.reply.detail.present ? ask.set.reply.detail.why
                                                                                  : ReasonOf(why);
      Miss(run, why == PartResult::kOk ? PartResult::kMiss : why, op);
    } else {
      // Behind the stop nothing is known. Where the run before it is asked elsewhere next, this one probably
      // has to be too.
      (void)TryOtherLevel(op, run);
    }
  }
  if (op.kind == OpKind::kFetch && !ask.set.inlined && ask.failure == PartResult::kOk) QueueFetch(op, index);
}

// The descriptors of a one-sided peer become transfers.
void ClientCore::Impl::QueueFetch(Operation& op, uint32_t index) {
  const Ask& ask = op.asks[index];
  const auto coords = static_cast<uint32_t>(op.coords.size());
  for (uint32_t i = ask.first_piece; i < ask.first_piece + ask.pieces; ++i) {
    const Piece& piece = op.pieces[i];
    for (uint32_t b = 0; b < piece.got; ++b) {
      const uint32_t part = (piece.at + b) * coords;
      for (uint32_t c = 0; c < coords; ++c) op.transfers.push_back({index, part + c, piece.first + b, c});
    }
  }
}

void ClientCore::Impl::FinishFind(Operation& op) {
  op.found = true;
  op.hit = op.limit;
  for (const RunState& run : op.runs) {
    if (run.have == run.run.count) continue;
    op.hit = run.run.first + run.have;
    op.stopped_by = run.ended || run.tried != 0 ? run.why : PartResult::kMiss;
    op.why = run.reason == MissReason::kNone ? ReasonOf(op.stopped_by) : run.reason;
    if (op.ending && !run.ended) {
      op.stopped_by = op.end_reason;
      op.why = MissReason::kUnreachable;
    }
    break;
  }
  op.bound = op.hit;
  if (!op.probe) {
    counters_.hit_blocks += op.hit - op.first;
    counters_.miss_blocks += op.limit - op.hit;
  }
  if (op.kind == OpKind::kPlan) MakePlan(op);
}

}  // namespace cistern
