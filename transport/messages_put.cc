#include "transport/messages.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

// OFFER_REPLY, PUT and PUT_REPLY.
namespace cistern {

void OfferReply::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(static_cast<uint32_t>(slots.size()));
  if (slots.empty()) return;
  constexpr size_t kSlotBytes = sizeof(uint64_t) + 1;
  std::byte* to = w.Grow(slots.size() * kSlotBytes);
  for (const Slot& slot : slots) {
    StoreLe<uint64_t>(to, slot.put_id);
    StoreLe<uint8_t>(to + 8, static_cast<uint8_t>(slot.result));
    to += kSlotBytes;
  }
}

absl::Status OfferReply::Decode(ByteView body) {
  WireReader r("offer_reply", body);
  slots.resize(r.GetCount("slots", kPartsPerRequestMax, sizeof(uint64_t) + 1));
  for (Slot& slot : slots) {
    slot.put_id = r.Get<uint64_t>("slots.put_id");
    slot.result = r.GetResult("slots.result");
  }
  return r.Finish();
}

void PutRequest::Encode(Bytes& out) const { WireWriter(out).PutRecords(parts); }

absl::Status PutRequest::Decode(ByteView body) {
  WireReader r("put", body);
  r.GetRecords("parts", kPartsPerRequestMax, parts);
  return r.Finish();
}

void PutReply::Encode(Bytes& out) const { WireWriter(out).PutRecords(results); }

absl::Status PutReply::Decode(ByteView body) {
  WireReader r("put_reply", body);
  r.GetRecords("results", kPartsPerRequestMax, results);
  for (const PartResult result : results) {
    if (static_cast<uint8_t>(result) > kPartResultMax) r.Fail("results", "no such result");
  }
  return r.Finish();
}

}  // namespace cistern
