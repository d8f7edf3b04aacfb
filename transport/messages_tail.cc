#include "transport/messages.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

// NOTE and AGREE: what clients tell nodes about chains.
namespace cistern {

static_assert(sizeof(NoteRequest::Superseded) == 40 && offsetof(NoteRequest::Superseded, successor) == 32);
static_assert(sizeof(NoteRequest::Stranded) == 16 && offsetof(NoteRequest::Stranded, first_part) == 8);

void NoteRequest::Encode(Bytes& out) const {
  WireWriter w(out);
  w.PutRecords(superseded);
  w.PutRecords(stranded);
}

absl::Status NoteRequest::Decode(ByteView body) {
  WireReader r("note", body);
  r.GetRecords("superseded", kNotesPerRequestMax, superseded);
  r.GetRecords("stranded", kNotesPerRequestMax, stranded);
  return r.Finish();
}

void AgreeRequest::Encode(Bytes& out) const {
  WireWriter w(out);
  w.PutFixed(request);
  w.PutBool(propose);
  w.Put(tokens);
}

absl::Status AgreeRequest::Decode(ByteView body) {
  WireReader r("agree", body);
  r.GetFixed("request", request);
  propose = r.GetBool("propose");
  tokens = r.Get<uint64_t>("tokens");
  return r.Finish();
}

void AgreeReply::Encode(Bytes& out) const {
  WireWriter w(out);
  w.Put(tokens);
  w.Put(asked);
  w.Put(incarnation);
}

absl::Status AgreeReply::Decode(ByteView body) {
  WireReader r("agree_reply", body);
  tokens = r.Get<uint64_t>("tokens");
  asked = r.Get<uint32_t>("asked");
  incarnation = r.Get<uint64_t>("incarnation");
  return r.Finish();
}

}  // namespace cistern
