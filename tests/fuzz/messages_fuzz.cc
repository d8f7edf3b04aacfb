// Bodies of all frames. The first byte of an input chooses the message.
#include <string>

#include "core/chain.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/messages.h"

namespace cistern {
namespace {

// What decodes must encode to something that decodes to the same; a decoder's vectors are reused, as peers
// do.
template <typename Message>
void Check(ByteView body) {
  static Message reused;
  if (!reused.Decode(body).ok()) return;
  Bytes once, twice;
  reused.Encode(once);
  Message fresh;
  FUZZ_REQUIRE(fresh.Decode(once).ok());
  fresh.Encode(twice);
  FUZZ_REQUIRE(once == twice);
  FUZZ_REQUIRE(once.size() <= kBodyBytesMax);
}

using Checker = void (*)(ByteView);
constexpr Checker kCheckers[] = {
    Check<Hello>,       Check<HelloAck>,     Check<Refused>,      Check<ChainRequest>, Check<LookupReply>,
    Check<PlanReply>,   Check<ReadRequest>,  Check<RenewRequest>, Check<RenewReply>,   Check<IdList>,
    Check<OfferReply>,  Check<PutRequest>,   Check<PutReply>,     Check<DropRequest>,  Check<DropReply>,
    Check<NoteRequest>, Check<AgreeRequest>, Check<AgreeReply>,   Check<QuotaRequest>, Check<QuotaReply>};
constexpr size_t kCheckerCount = sizeof kCheckers / sizeof kCheckers[0];

template <typename Message>
std::string Seed(int which, const Message& message) {
  Bytes body;
  message.Encode(body);
  return static_cast<char>(which) + std::string(reinterpret_cast<const char*>(body.data()), body.size());
}

}  // namespace

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  Hello hello;
  hello.key_algorithm = kKeyAlgorithm;
  hello.ticket = std::string(120, 't');
  hello.window_bytes = 1 << 20;
  add("hello", Seed(0, hello));
  HelloAck ack;
  ack.node_id = "node-1";
  ack.regions = {{1, 1 << 22}, {2, 1 << 23}};
  add("hello_ack", Seed(1, ack));
  Refused refused;
  refused.message = "versions 2 to 3 offered, 1 spoken here";
  add("refused", Seed(2, refused));
  ChainRequest chain;
  chain.plan_id = 3;
  chain.ttl_ms = 2000;
  chain.part_bytes = 65536;
  chain.coords = {PartCoord{0, 0, 0}, PartCoord{0, 1, 0}};
  chain.blocks.resize(3);
  chain.runs.resize(2);
  chain.runs[0].count = 1;
  chain.runs[1].count = 2;
  add("chain_request", Seed(3, chain));
  add("lookup_reply", Seed(4, LookupReply{}));
  PlanReply plan;
  plan.hit_blocks = 1;
  plan.parts.resize(2);
  add("plan_reply", Seed(5, plan));
  ReadRequest read;
  read.parts = {0, 1, 5};
  add("read", Seed(6, read));
  add("renew", Seed(7, RenewRequest{9, 2000}));
  add("renew_reply", Seed(8, RenewReply{}));
  IdList ids;
  ids.ids = {1, 2, 3};
  add("ids", Seed(9, ids));
  OfferReply offer;
  offer.slots.resize(2);
  add("offer_reply", Seed(10, offer));
  PutRequest put;
  put.parts = {{4, 0, 65536, 77}, {5, 65536, 65536, 78}};
  add("put", Seed(11, put));
  PutReply put_reply;
  put_reply.results = {PartResult::kOk, PartResult::kExists};
  add("put_reply", Seed(12, put_reply));
  DropRequest drop;
  drop.blocks.resize(2);
  add("drop", Seed(13, drop));
  add("drop_reply", Seed(14, DropReply{}));
  NoteRequest note;
  note.superseded.resize(1);
  note.stranded.resize(2);
  add("note", Seed(15, note));
  add("agree", Seed(16, AgreeRequest{.request = {}, .propose = true, .tokens = 512}));
  add("agree_reply", Seed(17, AgreeReply{.tokens = 512, .asked = 3, .incarnation = 1}));
  chain.coord_bytes = {65536, 4096};
  chain.junction = true;
  add("chain_request_sizes", Seed(3, chain));
  LookupReply detailed;
  detailed.hit_blocks = 65;
  detailed.detail = {.present = true, .why = MissReason::kEvicted, .tails = {1, 1}};
  add("lookup_reply_detail", Seed(4, detailed));
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  cistern::kCheckers[data[0] % cistern::kCheckerCount](
      {reinterpret_cast<const std::byte*>(data) + 1, size - 1});
  return 0;
}
