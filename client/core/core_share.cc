#include <algorithm>

#include "client/core/client_core_impl.h"
#include "client/core/segment_list.h"
#include "client/host_share.h"

// Parts that several ranks of this host load: one pulls, the others take what it has (docs/adr/0022).
namespace cistern {

// True: another rank brings the part, and the operation looks after it. Not for nodes of this host, whose
// memory is as near as the other rank's.
bool ClientCore::Impl::Share(Operation& op, const Transfer& transfer, const ClientPeer& peer) {
  if (options_.share == nullptr || op.shared.empty() || op.shared[transfer.coord] == 0) return false;
  const PeerPath* path = transport_.Path(peer.id);
  if (path == nullptr || path->kind == PathKind::kMap) return false;
  const ExpectedPart expected = Expect(op, transfer.page, transfer.coord);
  const PartDescriptor& part = op.plan->sets[transfer.set].reply.parts[transfer.part];
  if (VerifyDescriptor(expected, part) != PartResult::kOk) return false;  // It fails where all parts do.
  HostShare::Place place;
  switch (options_.share->Claim(expected.block, expected.coord, expected.length, clock_.Now(), place)) {
    case HostShare::Claimed::kFull:
      ++counters_.share_full;
      return false;
    case HostShare::Claimed::kMine:
      op.claims.resize(size_t{op.page_count()} * op.coords.size());
      op.claims[transfer.page * op.coords.size() + transfer.coord] = place;
      return false;
    case HostShare::Claimed::kOthers:
      op.awaited.push_back({transfer, place});
      return true;
  }
  return false;
}

// A part that this rank pulls has been judged: others get it, or know that they have to pull it themselves.
void ClientCore::Impl::HandOn(Operation& op, uint32_t page, uint32_t coord, const PartDescriptor& part,
                              PartResult result) {
  if (op.claims.empty()) return;
  HostShare::Place& place = op.claims[page * op.coords.size() + coord];
  if (place.is_none()) return;
  if (result == PartResult::kOk) {
    SlotTrailer trailer{};
    trailer.generation = part.generation;
    trailer.fingerprint = part.block.fingerprint;
    std::copy(part.block.hash.bytes.begin(), part.block.hash.bytes.end(), trailer.hash);
    trailer.coord = part.coord.Packed();
    trailer.length = part.length;
    trailer.crc = part.crc;
    share_target_.clear();
    AppendSlice(op.PageSegments(page), op.PartAt(coord), part.length, share_target_);
    options_.share->Publish(place, trailer, share_target_, clock_.Now());
    ++counters_.share_published;
  } else {
    options_.share->Drop(place);
  }
  place = {};
}

void ClientCore::Impl::DropClaims(Operation& op) {
  for (const HostShare::Place& place : op.claims) {
    if (!place.is_none()) options_.share->Drop(place);
  }
  op.claims.clear();
}

// Takes what is there of the parts that other ranks bring. What is late, gone or not what the node told of is
// pulled like any other.
void ClientCore::Impl::TakeShared(Operation& op) {
  if (op.awaited.empty()) return;
  const Nanos now = clock_.Now();
  uint64_t budget = kPullBytesPerPoll;
  size_t kept = 0;
  for (size_t i = 0; i < op.awaited.size(); ++i) {
    Operation::Awaited waiting = op.awaited[i];
    const Transfer& transfer = waiting.transfer;
    if (op.ending) {
      RecordPart(op, transfer.page, op.end_reason);
      continue;
    }
    const HostShare::State state = options_.share->Look(waiting.place);
    const uint32_t bytes = op.PartBytes(transfer.coord);
    if (state == HostShare::State::kThere && budget < bytes) {
      ComeAgain(op);
      while (i < op.awaited.size()) op.awaited[kept++] = op.awaited[i++];
      break;
    }
    if (state == HostShare::State::kComing && now < op.share_quiet_until) {
      op.awaited[kept++] = waiting;
      continue;
    }
    if (state == HostShare::State::kThere && TakePart(op, waiting, now)) {
      budget -= bytes;
      op.share_quiet_until = std::min(now + kShareQuietMax, op.share_end);
      continue;
    }
    if (state == HostShare::State::kComing) ++counters_.share_late;
    if (state == HostShare::State::kGone) ++counters_.share_gone;
    PullMyself(op, transfer);
  }
  op.awaited.resize(kept);
  op.look_at = kept == 0 ? kNever : now + kShareLookEvery;
  next_timer_ = std::min(next_timer_, op.look_at);
}

bool ClientCore::Impl::TakePart(Operation& op, const Operation::Awaited& waiting, Nanos now) {
  const Transfer& transfer = waiting.transfer;
  const PartSet& set = op.plan->sets[transfer.set];
  const ExpectedPart expected = Expect(op, transfer.page, transfer.coord);
  share_target_.clear();
  AppendSlice(op.PageSegments(transfer.page), op.PartAt(transfer.coord), expected.length, share_target_);
  const PullResult taken = options_.share->Take(waiting.place, share_target_);
  const PartResult result = VerifyPulled(expected, set.reply.parts[transfer.part], taken, now, set.lease_end);
  if (result != PartResult::kOk) {
    ++counters_.share_refused;
    return false;
  }
  ++counters_.share_parts;
  counters_.share_bytes += expected.length;
  RecordPart(op, transfer.page, PartResult::kOk);
  return true;
}

void ClientCore::Impl::PullMyself(Operation& op, const Transfer& transfer) {
  const ClientPeer* peer = PeerOfSet(op.plan->sets[transfer.set]);
  if (peer == nullptr) {
    ++counters_.stale_plans;
    RecordPart(op, transfer.page, PartResult::kStale);
  } else if (peer->one_sided) {
    op.transfers.push_back(transfer);
  } else {
    AddRead(op, transfer);
  }
}

}  // namespace cistern
