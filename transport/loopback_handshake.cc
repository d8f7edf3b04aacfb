// How connections of the loopback network begin: HELLO, its answer, and who may read which region.
#include <fcntl.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/chain.h"
#include "core/check.h"
#include "transport/loopback_internal.h"
#include "transport/loopback_transport.h"

namespace cistern {
namespace {

// A mapping of our own, as a peer on the same host gets it; null when the region cannot be mapped.
std::shared_ptr<MemoryRegion> MapOf(const MemoryRegion& region) {
  const int fd = fcntl(region.fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return nullptr;
  absl::StatusOr<MemoryRegion> mapped = MemoryRegion::MapPeer(fd, region.bytes());
  if (!mapped.ok()) return nullptr;
  return std::make_shared<MemoryRegion>(*std::move(mapped));
}

}  // namespace

absl::StatusOr<PeerId> LoopbackTransport::Connect(const std::string& address, const ConnectOptions& options) {
  CISTERN_CHECK(handler_ != nullptr);
  const size_t colon = address.find(':');
  const std::string scheme = address.substr(0, colon);
  if (colon == std::string::npos || colon + 1 == address.size() ||
      (scheme != "sim" && scheme != "tcp" && scheme != "unix")) {
    return absl::InvalidArgumentError(absl::StrCat("malformed address \"", address, "\""));
  }
  if (crashed_) return absl::UnavailableError("this host has crashed");
  if (peers_.size() >= kPeersMax) return absl::ResourceExhaustedError("too many peers");
  auto peer = std::make_unique<Peer>();
  const PeerId id = next_peer_++;
  peer->id = id;
  peer->side = 0;
  peer->state = Peer::State::kAwaitAck;
  peer->connection = network_.Open(this, id, address.substr(colon + 1));
  Hello hello = options.hello;
  hello.wants_map = options_.one_sided && options.allow_map;
  hello.window_bytes = 0;
  if (hello.wants_map && options.window != nullptr) {
    network_.Find(peer->connection)->window = MapOf(*options.window);
    if (network_.Find(peer->connection)->window != nullptr) hello.window_bytes = options.window->bytes();
  }
  peer->path = {PathKind::kLoopback, "sim", "simulated",
                hello.wants_map ? "simulated map" : "simulated socket", hello.wants_map};
  Bytes body;
  hello.Encode(body);
  OutFrame frame;
  frame.type = FrameType::kHello;
  frame.body = body;
  const uint32_t connection = peer->connection;
  peers_.emplace(id, std::move(peer));
  CISTERN_CHECK(network_.SendFrame(connection, 0, frame).ok());
  return id;
}

void LoopbackTransport::Accept(uint32_t connection) {
  if (handler_ == nullptr || peers_.size() >= kPeersMax) return;
  auto peer = std::make_unique<Peer>();
  peer->id = next_peer_++;
  peer->side = 1;
  peer->connection = connection;
  LoopbackNetwork::Connection::End& end = network_.Find(connection)->ends[1];
  end.endpoint = this;
  end.peer = peer->id;
  end.host = options_.host;
  peers_.emplace(peer->id, std::move(peer));
}

// The first frame of each side.
void LoopbackTransport::Handshake(Peer& peer, const FrameHeader& header, ByteView body) {
  if (peer.side == 1) {
    if (header.type != FrameType::kHello || header.payload_bytes != 0) {
      Down(peer.id, absl::PermissionDeniedError("first frame is no HELLO"));
      return;
    }
    OnHelloFrame(peer, body);
    return;
  }
  if (header.type == FrameType::kRefused) {
    Refused refused;
    const absl::Status decoded = refused.Decode(body);
    Down(peer.id, decoded.ok() ? absl::Status(refused.code, refused.message) : decoded);
    return;
  }
  HelloAck ack;
  absl::Status decoded = header.type == FrameType::kHelloAck
                             ? ack.Decode(body)
                             : absl::InvalidArgumentError("answer to HELLO is neither ack nor refusal");
  const auto& offered = network_.Find(peer.connection)->regions;
  if (decoded.ok() && offered.size() != ack.regions.size()) {
    decoded = absl::InvalidArgumentError("ack names other regions than came with it");
  }
  if (!decoded.ok()) {
    Down(peer.id, decoded);
    return;
  }
  for (size_t i = 0; i < offered.size(); ++i) peer.regions[ack.regions[i].id] = offered[i];
  if (offered.empty()) peer.path.one_sided = false;
  peer.state = Peer::State::kUp;
  handler_->OnPeerUp(peer.id, ack);
}

void LoopbackTransport::OnHelloFrame(Peer& peer, ByteView body) {
  Hello hello;
  absl::Status status = hello.Decode(body);
  if (status.ok() && (hello.version_min > kWireVersionMax || hello.version_max < kWireVersionMin)) {
    status = absl::FailedPreconditionError(absl::StrCat("wire versions ", hello.version_min, " to ",
                                                        hello.version_max, " offered, ", kWireVersionMin,
                                                        " to ", kWireVersionMax, " spoken here"));
  } else if (status.ok() && hello.key_algorithm != kKeyAlgorithm) {
    status = absl::FailedPreconditionError(absl::StrCat("key algorithm \"", hello.key_algorithm,
                                                        "\" offered, \"", kKeyAlgorithm, "\" used here"));
  }
  hello.wants_map = hello.wants_map && options_.one_sided;
  if (!hello.wants_map) hello.window_bytes = 0;
  HelloAck ack;
  std::vector<const MemoryRegion*> regions;
  const PeerId id = peer.id;
  if (status.ok()) status = handler_->OnHello(id, hello, ack, regions);
  Peer* still = Find(id);
  if (still == nullptr) return;
  LoopbackNetwork::Connection& connection = *network_.Find(still->connection);
  if (!hello.wants_map) {  // Nothing is handed over on a path without one-sided reads.
    ack.regions.clear();
    regions.clear();
  }
  if (status.ok() && regions.size() != ack.regions.size())
    status = absl::InternalError("regions without their ids");
  for (const MemoryRegion* region : regions) {
    if (status.ok()) connection.regions.push_back(MapOf(*region));
    if (status.ok() && connection.regions.back() == nullptr)
      status = absl::ResourceExhaustedError("region not mapped");
  }
  Bytes reply;
  OutFrame frame;
  if (!status.ok()) {
    Refused refused;
    refused.code = status.code();
    refused.message = std::string(status.message().substr(0, 512));
    refused.Encode(reply);
    frame.type = FrameType::kRefused;
  } else {
    ack.version = std::min<uint16_t>(hello.version_max, kWireVersionMax);
    ack.Encode(reply);
    frame.type = FrameType::kHelloAck;
  }
  frame.body = reply;
  const absl::Status sent = network_.SendFrame(still->connection, 1, frame);
  if (!status.ok() || !sent.ok()) {
    Down(id, status.ok() ? sent : status);
    return;
  }
  still->state = Peer::State::kUp;
  const bool window = hello.window_bytes != 0 && connection.window != nullptr;
  if (window) still->regions[kLoopbackWindowRegion] = connection.window;
  still->path = {PathKind::kLoopback, "sim", "simulated", "accepted", window || !connection.regions.empty()};
}

}  // namespace cistern
