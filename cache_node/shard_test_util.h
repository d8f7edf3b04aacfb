#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache_node/fake_transport.h"
#include "cache_node/node_shard.h"
#include "core/chain.h"
#include "core/crc32c.h"

namespace cistern {

inline constexpr uint32_t kAllRights = kRightRead | kRightWrite | kRightAdmin;

inline LayoutId LayoutNamed(uint8_t name) {
  LayoutId id;
  id.bytes.fill(name);
  return id;
}

// One shard with its fakes, and what a client would do to it in one line each. For tests and benchmarks.
class ShardWorld {
 public:
  static constexpr uint64_t kSeed = 20260;

  explicit ShardWorld(uint64_t ram_bytes, uint32_t shards = 1, std::string policy = kEvictionPolicyDefault)
      : random(kSeed) {
    NodeShardOptions options;
    options.node_id = "node-1";
    options.shards = shards;
    options.ram_bytes = ram_bytes;
    options.policy = std::move(policy);
    options.cluster_key = key;
    options.cluster = cluster;
    options.incarnation = 7;
    options.unix_now = [this] { return unix_now; };
    auto made = NodeShard::Create(std::move(options), clock, transport, random);
    CISTERN_CHECK(made.ok());
    shard = *std::move(made);
  }

  Hello MakeHello(uint32_t rights = kAllRights, int64_t life_s = 3600) {
    Ticket ticket;
    ticket.cluster = cluster;
    ticket.rights = rights;
    ticket.expires_unix_s = unix_now + life_s;
    Hello hello;
    hello.key_algorithm = kKeyAlgorithm;
    hello.cluster = cluster;
    hello.ticket = SealTicket(ticket, key);
    hello.client_id = random.Next();
    return hello;
  }
  PeerId Connect(uint32_t rights = kAllRights, bool one_sided = false, const MemoryRegion* window = nullptr) {
    auto peer = transport.Accept(MakeHello(rights), one_sided, window);
    CISTERN_CHECK(peer.ok());
    return *peer;
  }

  std::vector<BlockKey> Blocks(size_t count) {
    std::vector<BlockKey> blocks(count);
    for (BlockKey& block : blocks) {
      for (size_t i = 0; i < 32; i += 8) StoreLe<uint64_t>(block.hash.bytes.data() + i, random.Next());
      block.fingerprint = random.Next();
    }
    return blocks;
  }
  ChainRequest Chain(const std::vector<BlockKey>& blocks, uint32_t part_bytes,
                     std::vector<PartCoord> coords = {{}}) {
    ChainRequest request;
    request.layout = layout;
    request.part_bytes = part_bytes;
    request.coords = std::move(coords);
    if (!blocks.empty())
      request.runs = {{.run_key = blocks[0].hash, .count = static_cast<uint32_t>(blocks.size())}};
    request.blocks = blocks;
    return request;
  }

  // Bytes of a part: a pattern of its key, so a wrong one shows.
  static std::vector<std::byte> PartBytes(const BlockKey& block, PartCoord coord, uint32_t bytes) {
    std::vector<std::byte> out(bytes);
    Random pattern(block.hash.Prefix64() ^ block.fingerprint ^ coord.Packed());
    for (size_t i = 0; i + 8 <= bytes; i += 8) StoreLe<uint64_t>(out.data() + i, pattern.Next());
    for (size_t i = bytes & ~size_t{7}; i < bytes; ++i) out[i] = std::byte{0x5a};
    return out;
  }

  template <typename Reply>
  Reply Take(FrameType type) {
    for (size_t i = 0; i < transport.sent.size(); ++i) {
      if (transport.sent[i].type != type || transport.sent[i].request_id != last_request) continue;
      Reply reply;
      CISTERN_CHECK(reply.Decode(transport.sent[i].body).ok());
      shard->Poll();
      payload = transport.sent[i].payload;
      if (transport.sent[i].done) transport.sent.erase(transport.sent.begin() + static_cast<long>(i));
      return reply;
    }
    std::fprintf(stderr, "no reply of type %d\n", static_cast<int>(type));
    std::abort();
  }
  bool HasReply(FrameType type) const {
    for (const auto& sent : transport.sent) {
      if (sent.type == type && sent.request_id == last_request) return true;
    }
    return false;
  }
  // Of the reply that Take would take.
  uint16_t ReplyFlags() const {
    for (const auto& sent : transport.sent) {
      if (sent.request_id == last_request) return sent.flags;
    }
    return 0;
  }
  template <typename Message>
  void Ask(PeerId peer, FrameType type, const Message& message, uint16_t flags = 0,
           absl::Span<const std::byte> with = {}) {
    transport.Deliver(peer, type, ++last_request, message, flags, with);
  }

  LookupReply Lookup(PeerId peer, const ChainRequest& request, uint16_t flags = 0) {
    Ask(peer, FrameType::kLookup, request, flags);
    return Take<LookupReply>(FrameType::kLookupReply);
  }
  PlanReply Plan(PeerId peer, ChainRequest request, uint64_t plan_id, uint32_t ttl_ms = 2000,
                 uint16_t flags = 0) {
    request.plan_id = plan_id;
    request.ttl_ms = ttl_ms;
    Ask(peer, FrameType::kPlan, request, flags);
    return Take<PlanReply>(FrameType::kPlanReply);
  }
  PlanReply Read(PeerId peer, uint64_t plan_id, std::vector<uint32_t> parts) {
    Ask(peer, FrameType::kRead, ReadRequest{.plan_id = plan_id, .parts = std::move(parts)});
    return Take<PlanReply>(FrameType::kReadReply);
  }
  RenewReply Renew(PeerId peer, uint64_t plan_id, uint32_t ttl_ms) {
    Ask(peer, FrameType::kRenew, RenewRequest{.plan_id = plan_id, .ttl_ms = ttl_ms});
    return Take<RenewReply>(FrameType::kRenewReply);
  }
  void Release(PeerId peer, uint64_t plan_id) { Ask(peer, FrameType::kRelease, IdList{.ids = {plan_id}}); }
  OfferReply Offer(PeerId peer, const ChainRequest& request) {
    Ask(peer, FrameType::kOffer, request);
    return Take<OfferReply>(FrameType::kOfferReply);
  }
  DropReply DropAll(PeerId peer) {
    Ask(peer, FrameType::kDrop, DropRequest{.all = true, .blocks = {}});
    return Take<DropReply>(FrameType::kDropReply);
  }

  // The PUT that answers an offer, with its payload. Parts that were not wanted are left out; `which` tells
  // their places.
  PutRequest PutFor(const ChainRequest& request, const OfferReply& offer, std::vector<std::byte>& bytes,
                    std::vector<size_t>& which) {
    PutRequest put;
    for (size_t i = 0; i < offer.slots.size(); ++i) {
      if (offer.slots[i].result != PartResult::kOk) continue;
      const uint32_t length = request.BytesOf(i % request.coords.size());
      const auto part = PartBytes(request.blocks[i / request.coords.size()],
                                  request.coords[i % request.coords.size()], length);
      put.parts.push_back({.put_id = offer.slots[i].put_id,
                           .window_offset = bytes.size(),
                           .length = length,
                           .crc = Crc32c(part.data(), part.size())});
      which.push_back(i);
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return put;
  }
  // OFFER and PUT in one; a result per part.
  std::vector<PartResult> Store(PeerId peer, const ChainRequest& request) {
    const OfferReply offer = Offer(peer, request);
    std::vector<PartResult> results;
    for (const auto& slot : offer.slots) results.push_back(slot.result);
    std::vector<std::byte> bytes;
    std::vector<size_t> which;
    const PutRequest put = PutFor(request, offer, bytes, which);
    if (put.parts.empty()) return results;
    Ask(peer, FrameType::kPut, put, 0, bytes);
    const auto reply = Take<PutReply>(FrameType::kPutReply);
    for (size_t i = 0; i < which.size(); ++i) results[which[i]] = reply.results[i];
    return results;
  }

  // What a one-sided reader does with a descriptor: copy, then compare the trailer.
  bool Verify(const PartDescriptor& part, const BlockKey& asked) const {
    const std::byte* arena = shard->arena().data();
    const std::vector<std::byte> copy(arena + part.offset, arena + part.offset + part.length);
    SlotTrailer trailer;
    std::memcpy(&trailer, arena + part.trailer_offset, sizeof(trailer));
    return Crc32c(copy.data(), copy.size()) == part.crc && trailer.generation == part.generation &&
           trailer.generation % 2 == 0 && trailer.fingerprint == asked.fingerprint &&
           std::memcmp(trailer.hash, asked.hash.bytes.data(), 32) == 0 && trailer.length == part.length &&
           trailer.coord == part.coord.Packed();
  }

  SimClock clock;
  Random random;
  ClusterKey key = ClusterKey::Generate();
  ClusterId cluster{.bytes = {1, 2, 3, 4}};
  LayoutId layout = LayoutNamed(1);
  int64_t unix_now = 1'800'000'000;
  FakeTransport transport;
  std::unique_ptr<NodeShard> shard;
  uint64_t last_request = 0;
  std::vector<std::byte> payload;  // Of the reply taken last.
};

}  // namespace cistern
