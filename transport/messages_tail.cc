#include "transport/messages.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

// NOTE: what clients tell nodes about chains.
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

}  // namespace cistern
