#include "transport/message_samples.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "core/chain.h"

namespace cistern {
namespace {

template <size_t N, typename Tag>
void Fill(Random& random, FixedBytes<N, Tag>& to) {
  for (uint8_t& byte : to.bytes) byte = static_cast<uint8_t>(random.Next());
}
BlockKey RandomKey(Random& random) {
  BlockKey key;
  Fill(random, key.hash);
  key.fingerprint = random.Next();
  return key;
}
PartCoord RandomCoord(Random& random) { return PartCoord::Unpack(static_cast<uint32_t>(random.Next())); }
PartResult RandomResult(Random& random) { return static_cast<PartResult>(random.Below(kPartResultMax + 1)); }
std::string RandomText(Random& random, size_t bytes_max) {
  std::string text(random.Below(bytes_max + 1), ' ');
  for (char& c : text) c = static_cast<char>(random.Next());
  return text;
}
uint32_t R32(Random& random) { return static_cast<uint32_t>(random.Next()); }

void Make(Random& random, Hello& m) {
  m.version_min = static_cast<uint16_t>(random.Below(3));
  m.version_max = static_cast<uint16_t>(m.version_min + random.Below(3));
  m.key_algorithm =
      random.Chance(0.5) ? std::string(kKeyAlgorithm) : RandomText(random, kKeyAlgorithmBytesMax);
  Fill(random, m.cluster);
  m.ticket = RandomText(random, 200);
  m.client_id = random.Next();
  m.wants_map = random.Chance(0.5);
  m.window_bytes = random.Next();
}
void Make(Random& random, HelloAck& m) {
  m.version = static_cast<uint16_t>(random.Next());
  m.node_id = RandomText(random, kWireNodeIdBytesMax);
  m.incarnation = random.Next();
  m.shards = static_cast<uint32_t>(1 + random.Below(64));
  m.shard = static_cast<uint32_t>(random.Below(m.shards));
  m.regions.resize(random.Below(5));
  for (RegionInfo& region : m.regions) region = {R32(random), random.Next()};
}
void Make(Random& random, Refused& m) {
  m.code = static_cast<absl::StatusCode>(1 + random.Below(16));
  m.message = RandomText(random, kRefusalBytesMax);
}
void Make(Random& random, ChainRequest& m) {
  Fill(random, m.layout);
  m.plan_id = random.Next();
  m.ttl_ms = R32(random);
  m.deadline_ms = R32(random);
  m.part_bytes = R32(random);
  m.depth = R32(random);
  m.coords.clear();
  for (uint64_t i = random.Below(4); i > 0; --i) m.coords.push_back(RandomCoord(random));
  m.blocks.clear();
  m.runs.resize(random.Below(4));
  for (RunRef& run : m.runs) {
    Fill(random, run.run_key);
    run.first_index = R32(random);
    run.count = static_cast<uint32_t>(1 + random.Below(8));
    for (uint32_t i = 0; i < run.count; ++i) m.blocks.push_back(RandomKey(random));
  }
  m.coord_bytes.clear();
  m.tail_parts = 0;
  m.junction = false;
  m.retention = {};
}
// With what may follow (F61): as layouts of several groups use it.
void MakeExtended(Random& random, ChainRequest& m) {
  Make(random, m);
  m.junction = random.Chance(0.3);
  if (random.Chance(0.5)) return;
  for (size_t i = 0; i < m.coords.size(); ++i) m.coord_bytes.push_back(R32(random));
  if (m.blocks.size() == 1) m.tail_parts = static_cast<uint32_t>(random.Below(9));
}
void Make(Random& random, Retention& m) {
  m.ttl_s = static_cast<uint32_t>(random.Below(kTtlSecondsMax + 1));
  m.sliding = m.ttl_s > 0 && random.Chance(0.5);
  m.pin = static_cast<PinKind>(random.Below(kPinKindMax + 1));
}
void MakeRetained(Random& random, ChainRequest& m) {
  MakeExtended(random, m);
  Make(random, m.retention);
}
void Make(Random& random, QuotaLimits& m) {
  m = {.quota_bytes = random.Next(), .floor_bytes = random.Next(), .reject_when_full = random.Chance(0.5)};
  Make(random, m.retention);
}
void Make(Random& random, QuotaRequest& m) {
  m.tenant.assign(random.Below(9), 'q');
  Make(random, m.limits);
}
void Make(Random& random, QuotaReply& m) {
  m.rows.resize(random.Below(4));
  for (QuotaReply::Row& row : m.rows) {
    row.tenant.assign(random.Below(9), 'r');
    Make(random, row.limits);
    row.used_bytes = random.Next();
    row.rejected_bytes = random.Next();
  }
}
void Make(Random& random, ReplyDetail& m, uint32_t blocks) {
  m.tails.clear();
  m.present = random.Chance(0.5);
  m.why = m.present ? static_cast<MissReason>(random.Below(kMissReasonMax + 1)) : MissReason::kNone;
  if (!m.present) return;
  for (uint64_t i = random.Below(std::min<uint64_t>((blocks + 63) / 64, 4) + 1); i > 0; --i) {
    m.tails.push_back(random.Next());
  }
}
void Make(Random& random, LookupReply& m) {
  m.hit_blocks = static_cast<uint32_t>(random.Below(kBlocksPerRequestMax + 1));
  m.stopped_by = RandomResult(random);
  m.incarnation = random.Next();
  m.detail = {};
}
void MakeExtended(Random& random, LookupReply& m) {
  Make(random, m);
  Make(random, m.detail, m.hit_blocks);
}
void Make(Random& random, PlanReply& m) {
  m.hit_blocks = static_cast<uint32_t>(random.Below(kBlocksPerRequestMax + 1));
  m.stopped_by = RandomResult(random);
  m.plan_id = random.Next();
  m.ttl_ms = R32(random);
  m.incarnation = random.Next();
  m.parts.resize(random.Below(8));
  BlockKey key = RandomKey(random);
  for (PartDescriptor& part : m.parts) {
    if (random.Chance(0.5)) key = RandomKey(random);
    part = {RandomResult(random), R32(random),   R32(random), R32(random),        random.Next(),
            random.Next(),        random.Next(), key,         RandomCoord(random)};
  }
  m.detail = {};
}
void MakeExtended(Random& random, PlanReply& m) {
  Make(random, m);
  Make(random, m.detail, m.hit_blocks);
}
void Make(Random& random, ReadRequest& m) {
  m.plan_id = random.Next();
  m.deadline_ms = R32(random);
  m.parts.resize(random.Below(8));
  for (uint32_t& part : m.parts) part = R32(random);
}
void Make(Random& random, RenewRequest& m) {
  m.plan_id = random.Next();
  m.ttl_ms = R32(random);
}
void Make(Random& random, RenewReply& m) {
  m.result = RandomResult(random);
  m.ttl_ms = R32(random);
}
void Make(Random& random, IdList& m) {
  m.ids.resize(random.Below(8));
  for (uint64_t& id : m.ids) id = random.Next();
}
void Make(Random& random, OfferReply& m) {
  m.slots.resize(random.Below(8));
  for (OfferReply::Slot& slot : m.slots) slot = {random.Next(), RandomResult(random)};
}
void Make(Random& random, PutRequest& m) {
  m.parts.resize(random.Below(8));
  for (PutRequest::Part& part : m.parts) part = {random.Next(), random.Next(), R32(random), R32(random)};
}
void Make(Random& random, PutReply& m) {
  m.results.resize(random.Below(8));
  for (PartResult& result : m.results) result = RandomResult(random);
}
void Make(Random& random, DropRequest& m) {
  m.all = random.Chance(0.5);
  m.blocks.resize(random.Below(4));
  for (BlockHash& block : m.blocks) Fill(random, block);
}
void Make(Random& random, NoteRequest& m) {
  m.superseded.resize(random.Below(4));
  for (NoteRequest::Superseded& note : m.superseded) {
    Fill(random, note.block);
    note.successor = random.Next();
  }
  m.stranded.resize(random.Below(4));
  for (NoteRequest::Stranded& note : m.stranded) note = {random.Next(), random.Next()};
}
void Make(Random& random, AgreeRequest& m) {
  Fill(random, m.request);
  m.propose = random.Chance(0.5);
  m.tokens = random.Next();
}
void Make(Random& random, AgreeReply& m) {
  m.tokens = random.Next();
  m.asked = R32(random);
  m.incarnation = random.Next();
}
void Make(Random& random, DropReply& m) {
  m.dropped_parts = random.Next();
  m.kept_parts = random.Next();
}

template <typename Message>
MessageKind Kind(const char* name, const char* stored, void (*make)(Random&, Message&)) {
  MessageKind kind;
  kind.name = name;
  kind.stored = stored;
  kind.encode_random = [make](Random& random) {
    Message message;
    make(random, message);
    Bytes out;
    message.Encode(out);
    return out;
  };
  kind.decode_and_encode = [make](ByteView body) -> absl::StatusOr<Bytes> {
    Message message;
    Random random(body.size());
    make(random, message);  // Leftovers of an earlier frame must not shine through.
    if (absl::Status status = message.Decode(body); !status.ok()) return status;
    Bytes out;
    message.Encode(out);
    return out;
  };
  return kind;
}
template <typename Message>
MessageKind Kind(const char* name) {
  return Kind<Message>(name, name, [](Random& random, Message& message) { Make(random, message); });
}
template <typename Message>
MessageKind Extended(const char* name, const char* stored) {
  return Kind<Message>(name, stored, [](Random& random, Message& message) { MakeExtended(random, message); });
}

}  // namespace

std::vector<MessageKind> AllMessageKinds() {
  return {Kind<Hello>("hello"),
          Kind<HelloAck>("hello_ack"),
          Kind<Refused>("refused"),
          Kind<ChainRequest>("chain_request"),
          Kind<LookupReply>("lookup_reply"),
          Kind<PlanReply>("plan_reply"),
          Kind<ReadRequest>("read"),
          Kind<RenewRequest>("renew"),
          Kind<RenewReply>("renew_reply"),
          Kind<IdList>("id_list"),
          Kind<OfferReply>("offer_reply"),
          Kind<PutRequest>("put"),
          Kind<PutReply>("put_reply"),
          Kind<DropRequest>("drop"),
          Kind<DropReply>("drop_reply"),
          Kind<NoteRequest>("note"),
          Kind<AgreeRequest>("agree"),
          Kind<AgreeReply>("agree_reply"),
          Kind<QuotaRequest>("quota"),
          Kind<QuotaReply>("quota_reply"),
          Kind<ChainRequest>("chain_request", "chain_request++", MakeRetained),
          Extended<ChainRequest>("chain_request", "chain_request+"),
          Extended<LookupReply>("lookup_reply", "lookup_reply+"),
          Extended<PlanReply>("plan_reply", "plan_reply+")};
}

}  // namespace cistern
