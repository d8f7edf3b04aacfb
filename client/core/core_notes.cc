#include <algorithm>
#include <new>

#include "client/core/client_core_impl.h"

// NOTE: what this client knows of a chain that no single node can know. Lost notes cost order of eviction
// alone.
namespace cistern {

void ClientCore::Impl::NoteSuperseded(const ChainView& chain, uint32_t block, uint64_t successor) {
  if (block >= chain.blocks.size()) return;
  const BlockHash& run = chain.blocks[RunFirst(block, peers_.map().run_blocks_cap)].hash;
  const ClientPeer* peer = peers_.Get(peers_.PeerFor(0, run));
  if (peer == nullptr || peer->state != PeerState::kUp || !peer->takes_notes) return;
  notes_.push_back({.connection = peer->id,
                    .superseded = {.block = chain.blocks[block].hash, .successor = successor},
                    .stranded = {}});
}

// The first `used_blocks` of an ask's answer were of use; a block before the others is nowhere.
void ClientCore::Impl::NoteStranded(const Operation& op, const Ask& ask, uint32_t used_blocks) {
  if (op.stopped_by != PartResult::kMiss || op.ending || op.first != 0 || op.tail_parts != 0) return;
  if (peers_.levels() > 1) return;  // While runs move, a block may be with another owner.
  const ClientPeer* peer = peers_.ById(ask.set.connection);
  if (peer == nullptr || !peer->takes_notes || ask.set.plan_id == 0) return;
  try {
    notes_.push_back(
        {.connection = ask.set.connection,
         .superseded = {},
         .stranded = {.plan_id = ask.set.plan_id, .first_part = uint64_t{used_blocks} * op.coords.size()}});
  } catch (const std::bad_alloc&) {
  }
}

void ClientCore::Impl::FlushNotes() {
  while (!notes_.empty()) {
    const PeerId connection = notes_.back().connection;
    note_request_.superseded.clear();
    note_request_.stranded.clear();
    for (size_t i = notes_.size(); i-- > 0;) {
      if (notes_[i].connection != connection) continue;
      if (notes_[i].stranded.plan_id == 0) {
        note_request_.superseded.push_back(notes_[i].superseded);
      } else {
        note_request_.stranded.push_back(notes_[i].stranded);
      }
      notes_[i] = notes_.back();
      notes_.pop_back();
      if (std::max(note_request_.superseded.size(), note_request_.stranded.size()) == kNotesPerRequestMax)
        break;
    }
    ClientPeer* peer = peers_.ById(connection);
    if (peer == nullptr || peer->state != PeerState::kUp) continue;
    body_.clear();
    note_request_.Encode(body_);
    OutFrame frame;
    frame.type = FrameType::kNote;
    frame.body = body_;
    frame.flush = false;
    SendFrame(connection, frame).IgnoreError();
    ++counters_.notes;
    flush_at_ = std::min(flush_at_, clock_.Now() + kFlushAfter);
  }
}

}  // namespace cistern
