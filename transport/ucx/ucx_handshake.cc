#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/chain.h"
#include "core/check.h"
#include "core/status_macros.h"
#include "transport/ucx/ucx_facts.h"
#include "transport/ucx/ucx_transport.h"

// How a connection becomes a peer: HELLO within the deadline, versions and key algorithm that agree, the
// handler's word on the ticket, and the keys of the memory that either side may read. Nothing that a peer
// sends reaches UCX's own decoding of keys before its ticket was good.
namespace cistern {
namespace {

constexpr uint32_t kHelloFrameBytesMax = 2048;
constexpr uint32_t kAckFrameBytesMax = 4096;

std::string PrintedEndpoint(ucp_ep_h ep) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  ucp_ep_print_info(ep, stream);
  std::fclose(stream);
  std::string out(text, bytes);
  std::free(text);
  return out;
}

}  // namespace

// A region as its owner registered it, ready to be told.
absl::Status UcxTransport::Announce(uint32_t id, const MemoryRegion& memory, Announcement& out) {
  const Registration* registration = registrations_.Find(memory.data(), memory.bytes());
  if (registration == nullptr) {
    CISTERN_ASSIGN_OR_RETURN(registration, registrations_.Add(memory.data(), memory.bytes(), /*grain=*/4096));
    windows_.push_back(&memory);
  }
  AnnouncedRegion& region = out.regions.emplace_back();
  region.id = id;
  for (const Registration::Chunk& chunk : registration->chunks) {
    CISTERN_ASSIGN_OR_RETURN(std::vector<std::byte> key, context_->PackKey(chunk.handle));
    region.chunks.push_back({reinterpret_cast<uint64_t>(chunk.data), chunk.bytes, std::move(key)});
  }
  return absl::OkStatus();
}

// Takes over what a peer told about its memory: exactly the regions that its frame named.
absl::Status UcxTransport::TakeAnnouncement(UcxPeer& peer, ByteView extra,
                                            const std::vector<RegionInfo>& wanted) {
  Announcement announcement;
  CISTERN_RETURN_IF_ERROR(announcement.Decode(extra));
  if (announcement.regions.size() != wanted.size())
    return absl::InvalidArgumentError("announcement: not the regions of its frame");
  for (size_t i = 0; i < wanted.size(); ++i) {
    const AnnouncedRegion& told = announcement.regions[i];
    RemoteRegion region;
    region.id = told.id;
    for (const AnnouncedChunk& chunk : told.chunks) {
      // UCX reads a key without knowing its length: zeros behind it keep it inside.
      std::vector<std::byte> key(chunk.rkey);
      key.resize(kRkeyBytesMax * 2);
      ucp_rkey_h rkey = nullptr;
      const ucs_status_t status = ucp_ep_rkey_unpack(peer.ep, key.data(), &rkey);
      if (status != UCS_OK) return UcxError(status, "a peer's memory key");
      region.chunks.push_back({region.bytes, chunk.address, chunk.bytes, RkeyHandle(rkey)});
      region.bytes += chunk.bytes;
    }
    if (told.id != wanted[i].id || region.bytes != wanted[i].bytes)
      return absl::InvalidArgumentError("announcement: not the regions of its frame");
    peer.regions.push_back(std::move(region));
  }
  return absl::OkStatus();
}

void UcxTransport::QueueHello(UcxPeer& peer) {
  Hello& hello = peer.connect.hello;
  hello.wants_map = peer.connect.allow_map && MayReadOneSided(context_->facts().rdma);
  hello.window_bytes = 0;
  extra_.clear();
  if (hello.wants_map && peer.connect.window != nullptr) {
    Announcement announcement;
    const absl::Status told = Announce(kPutWindowRegion, *peer.connect.window, announcement);
    if (told.ok()) {
      announcement.Encode(extra_);
      hello.window_bytes = peer.connect.window->bytes();
    } else {  // Stores then go in line.
      ++counters_.one_sided_refused;
      peer.path.why = absl::StrCat("put window not registered: ", told.message());
    }
  }
  body_.clear();
  hello.Encode(body_);
  OutFrame frame;
  frame.type = FrameType::kHello;
  frame.body = body_;
  Queue(peer, frame, extra_);
  Post(peer);
}

void UcxTransport::OnHelloFrame(UcxPeer& peer, const FrameHeader& header, ByteView body, ByteView extra) {
  if (header.type != FrameType::kHello || body.size() > kHelloFrameBytesMax)
    return CloseBad(peer, absl::PermissionDeniedError("a frame before HELLO, or one too long"));
  Hello hello;
  absl::Status status = CheckHello(header, body, hello, counters_);
  if (status.ok() && (hello.window_bytes > 0) != !extra.empty())
    status = absl::InvalidArgumentError("HELLO and its announcement disagree");
  const bool rdma = FillPath(peer);
  if (!MayReadOneSided(rdma)) {  // The handler then answers with bytes, and no key leaves this process.
    hello.wants_map = false;
    hello.window_bytes = 0;
  }
  HelloAck ack;
  std::vector<const MemoryRegion*> regions;
  if (status.ok()) {
    status = handler_->OnHello(peer.id, hello, ack, regions);
    if (peer.state == State::kDown) return;
    if (!status.ok()) ++counters_.hello_refused;
  }
  if (!status.ok()) return Refuse(peer, status);
  peer.state = State::kUp;
  peer.deadline = kNever;
  --unauthenticated_;
  peer.version = static_cast<uint8_t>(std::min<uint16_t>(kWireVersionMax, hello.version_max));
  if (hello.window_bytes > 0) {
    status = TakeAnnouncement(peer, extra, {{kPutWindowRegion, hello.window_bytes}});
    if (!status.ok()) return CloseBad(peer, status);
  }
  if (!hello.wants_map) {
    ack.regions.clear();
    regions.clear();
  }
  SendAck(peer, ack, regions);
}

void UcxTransport::SendAck(UcxPeer& peer, HelloAck& ack, const std::vector<const MemoryRegion*>& regions) {
  CISTERN_CHECK(regions.size() == ack.regions.size());
  CISTERN_CHECK(regions.size() <= kRegionsPerPeerMax);
  ack.version = peer.version;
  Announcement announcement;
  absl::Status told;
  for (size_t i = 0; i < regions.size() && told.ok(); ++i) {
    ack.regions[i].bytes = regions[i]->bytes();
    told = Announce(ack.regions[i].id, *regions[i], announcement);
  }
  if (!told.ok()) {  // The peer then reads by frames.
    ++counters_.one_sided_refused;
    ack.regions.clear();
    announcement.regions.clear();
  }
  peer.path.one_sided = !announcement.regions.empty() || !peer.regions.empty();
  if (!told.ok()) peer.path.why = absl::StrCat("arena not registered: ", told.message());
  extra_.clear();
  if (!announcement.regions.empty()) announcement.Encode(extra_);
  body_.clear();
  ack.Encode(body_);
  OutFrame frame;
  frame.type = FrameType::kHelloAck;
  frame.body = body_;
  Queue(peer, frame, extra_);
  Post(peer);
}

bool UcxTransport::MayReadOneSided(bool rdma) const { return rdma || context_->options().emulated_gets; }

// Which links the connection got; true when it reads without the owner's CPU.
bool UcxTransport::FillPath(UcxPeer& peer) {
  const std::vector<std::string> links = ParseEndpointLinks(PrintedEndpoint(peer.ep));
  const bool rdma =
      std::any_of(links.begin(), links.end(), [](const std::string& l) { return IsOneSidedLink(l); });
  peer.path.device = absl::StrJoin(links, ", ");
  peer.path.memory = rdma ? "registered, read by the NIC" : "host, sent and received by UCX";
  if (peer.path.why.empty()) peer.path.why = rdma ? "fabric, RDMA" : "fabric, no RDMA on this connection";
  return rdma;
}

void UcxTransport::OnAckFrame(UcxPeer& peer, const FrameHeader& header, ByteView body, ByteView extra) {
  if (header.type == FrameType::kRefused) {
    Refused refused;
    const absl::Status decoded = refused.Decode(body);
    if (!decoded.ok()) return CloseBad(peer, decoded);
    return Down(peer, absl::Status(refused.code, refused.message));
  }
  if (header.type != FrameType::kHelloAck || body.size() > kAckFrameBytesMax)
    return CloseBad(peer, absl::InvalidArgumentError("answer to HELLO is neither ack nor refusal"));
  HelloAck ack;
  absl::Status status = ack.Decode(body);
  const Hello& hello = peer.connect.hello;
  if (status.ok() && (ack.version < std::max<uint16_t>(hello.version_min, kWireVersionMin) ||
                      ack.version > std::min<uint16_t>(hello.version_max, kWireVersionMax))) {
    status = absl::InvalidArgumentError(absl::StrCat("wire version ", ack.version, " was not offered"));
  }
  if (status.ok() && !hello.wants_map && !ack.regions.empty())
    status = absl::InvalidArgumentError("memory was offered that nobody asked for");
  if (status.ok() && !ack.regions.empty()) status = TakeAnnouncement(peer, extra, ack.regions);
  if (!status.ok()) return CloseBad(peer, status);
  const bool rdma = FillPath(peer);
  peer.path.one_sided = !peer.regions.empty();
  if (rdma && hello.wants_map && !peer.path.one_sided) {
    ++counters_.one_sided_refused;
    peer.path.why = "the node offers no memory";
  }
  peer.state = State::kUp;
  peer.deadline = kNever;
  peer.version = static_cast<uint8_t>(ack.version);
  handler_->OnPeerUp(peer.id, ack);
}

// Tells why, then waits for the peer to close.
void UcxTransport::Refuse(UcxPeer& peer, const absl::Status& why) {
  peer.state = State::kRefusing;
  Refused refused;
  refused.code = why.code();
  refused.message = std::string(why.message());
  body_.clear();
  refused.Encode(body_);
  OutFrame frame;
  frame.type = FrameType::kRefused;
  frame.body = body_;
  Queue(peer, frame, {});
  Post(peer);
}

}  // namespace cistern
