#include "transport/messages.h"

#include "core/ticket.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

// The handshake, refusals and what an operator asks. Chains are in messages_chain.cc, puts in
// messages_put.cc.
namespace cistern {

void Hello::Encode(Bytes& out) const {
  WireWriter w(out);
  // The versions and the algorithm stay first in every later version: a refusal reads them before anything
  // else.
  w.Put(version_min);
  w.Put(version_max);
  w.PutString(key_algorithm, kKeyAlgorithmBytesMax);
  w.PutFixed(cluster);
  w.PutString(ticket, kTicketBytesMax);
  w.Put(client_id);
  w.PutBool(wants_map);
  w.Put(window_bytes);
}

absl::Status Hello::Decode(ByteView body) {
  WireReader r("hello", body);
  version_min = r.Get<uint16_t>("version_min");
  version_max = r.Get<uint16_t>("version_max");
  r.GetString("key_algorithm", kKeyAlgorithmBytesMax, key_algorithm);
  r.GetFixed("cluster", cluster);
  r.GetString("ticket", kTicketBytesMax, ticket);
  client_id = r.Get<uint64_t>("client_id");
  wants_map = r.GetBool("wants_map");
  window_bytes = r.Get<uint64_t>("window_bytes");
  if (r.ok() && version_min > version_max) r.Fail("version_min", "above version_max");
  return r.Finish();
}

absl::Status Hello::DecodeVersions(ByteView body) {
  WireReader r("hello", body);
  version_min = r.Get<uint16_t>("version_min");
  version_max = r.Get<uint16_t>("version_max");
  r.GetString("key_algorithm", kKeyAlgorithmBytesMax, key_algorithm);
  return r.ok() ? absl::OkStatus() : r.Finish();
}

void HelloAck::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(version);
  w.PutString(node_id, kWireNodeIdBytesMax);
  w.Put(incarnation);
  w.Put(shard);
  w.Put(shards);
  w.Put(static_cast<uint32_t>(regions.size()));
  for (const RegionInfo& region : regions) {
    w.Put(region.id);
    w.Put(region.bytes);
  }
}

absl::Status HelloAck::Decode(ByteView body) {
  WireReader r("hello_ack", body);
  version = r.Get<uint16_t>("version");
  r.GetString("node_id", kWireNodeIdBytesMax, node_id);
  incarnation = r.Get<uint64_t>("incarnation");
  shard = r.Get<uint32_t>("shard");
  shards = r.Get<uint32_t>("shards");
  regions.resize(r.GetCount("regions", kRegionsPerPeerMax, sizeof(uint32_t) + sizeof(uint64_t)));
  for (RegionInfo& region : regions) {
    region.id = r.Get<uint32_t>("regions.id");
    region.bytes = r.Get<uint64_t>("regions.bytes");
  }
  if (r.ok() && shard >= shards) r.Fail("shard", "not below shards");
  return r.Finish();
}

void Refused::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(static_cast<uint8_t>(code));
  w.PutString(message, kRefusalBytesMax);
}

absl::Status Refused::Decode(ByteView body) {
  WireReader r("refused", body);
  const auto raw = r.Get<uint8_t>("code");
  if (r.ok() && (raw == 0 || raw > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated))) {
    r.Fail("code", "no such code");
  }
  code = r.ok() ? static_cast<absl::StatusCode>(raw) : absl::StatusCode::kUnknown;
  r.GetString("message", kRefusalBytesMax, message);
  return r.Finish();
}

void DropRequest::Encode(Bytes& out) const {
  WireWriter w(out);
  w.PutBool(all);
  w.PutRecords(blocks);
}

absl::Status DropRequest::Decode(ByteView body) {
  WireReader r("drop", body);
  all = r.GetBool("all");
  r.GetRecords("blocks", kBlocksPerRequestMax, blocks);
  return r.Finish();
}

void DropReply::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(dropped_parts);
  w.Put(kept_parts);
}

absl::Status DropReply::Decode(ByteView body) {
  WireReader r("drop_reply", body);
  dropped_parts = r.Get<uint64_t>("dropped_parts");
  kept_parts = r.Get<uint64_t>("kept_parts");
  return r.Finish();
}

}  // namespace cistern
