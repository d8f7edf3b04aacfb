// What a listening port has to take from anybody (F29): frames in numbers, most of them broken in some place.
//   wire_flood ROUTER tcp|unix|grpc FRAMES SEED
// tcp and unix are the ports of the cluster's first node, grpc is the router's. Four of five connections to a
// node begin with a good ticket, so that what follows reaches the shard. Prints {"frames", "connections"}.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/control/router_link.h"
#include "core/random.h"
#include "transport/message_samples.h"
#include "transport/socket_raw_peer.h"

namespace {

using namespace cistern;  // NOLINT: a program of one file.

constexpr uint64_t kCheckEvery = 16;  // Frames sent before we look whether the other side has closed.
// Frames after which a connection has to come to an end, so that no run depends on how soon a busy process
// reads.
constexpr uint64_t kPerConnection = 512;
constexpr int kEndMs = 60'000;  // For the other side to read what was sent, and to close.

struct Counts {
  uint64_t frames = 0, connections = 0;
};

// A unix socket refuses at once when too many connections wait to be accepted: then a moment later.
std::unique_ptr<RawPeer> Connect(const std::string& address) {
  const absl::StatusOr<SocketAddress> parsed = SocketAddress::Parse(address);
  for (int tries = 0; parsed.ok() && tries < 10'000; ++tries) {
    absl::StatusOr<UniqueFd> fd = parsed->Connect();
    if (!fd.ok()) {
      poll(nullptr, 0, 1);
      continue;
    }
    pollfd ready{fd->get(), POLLOUT, 0};
    poll(&ready, 1, 5000);
    return std::make_unique<RawPeer>(*std::move(fd));
  }
  std::fprintf(stderr, "nobody listens at %s any more\n", address.c_str());
  std::exit(1);
}

// We have no more to say: now the other side must read to the end, or to the first broken frame, and close.
void ExpectEnd(RawPeer& peer) {
  shutdown(peer.fd(), SHUT_WR);
  while (peer.Drain()) {
    pollfd readable{peer.fd(), POLLIN, 0};
    if (poll(&readable, 1, kEndMs) > 0) continue;
    std::fprintf(stderr, "a connection was still open %d ms after its last frame\n", kEndMs);
    std::exit(1);
  }
}

// After frame number `sent` of a connection: whether it has come to its end.
bool AtEnd(RawPeer& peer, uint64_t sent) {
  if (sent % kCheckEvery == 0 && !peer.Drain()) return true;
  if (sent < kPerConnection) return false;
  ExpectEnd(peer);
  return true;
}

// Half of the bodies are legal ones of some message, as they are or with a few bytes changed.
Bytes DrawBody(Random& random, const std::vector<MessageKind>& kinds) {
  if (random.Chance(0.5)) {
    Bytes body(random.Below(random.Chance(0.02) ? 20'000 : 100));
    for (std::byte& byte : body) byte = static_cast<std::byte>(random.Next());
    return body;
  }
  Bytes body = kinds[random.Below(kinds.size())].encode_random(random);
  for (uint64_t i = random.Below(4); i > 0 && !body.empty(); --i)
    body[random.Below(body.size())] = static_cast<std::byte>(random.Next());
  return body;
}

Bytes DrawFrame(Random& random, const std::vector<MessageKind>& kinds) {
  FrameHeader header;
  header.type = static_cast<FrameType>(random.Below(42));
  header.flags = static_cast<uint16_t>(random.Chance(0.5) ? random.Next() : 0);
  header.request_id = random.Next();
  header.payload_bytes = random.Chance(0.3) ? random.Below(3000) : 0;
  if (random.Chance(0.01)) header.payload_bytes = random.Next();  // Far above every limit.
  Bytes bytes = RawPeer::Frame(header, DrawBody(random, kinds));
  if (header.payload_bytes < 3000) bytes.resize(bytes.size() + header.payload_bytes);
  if (random.Chance(0.01)) bytes[random.Below(bytes.size())] ^= std::byte{1};
  return bytes;
}

Counts FloodNode(const std::string& address, const TicketGrant& ticket, uint64_t frames, Random& random) {
  const std::vector<MessageKind> kinds = AllMessageKinds();
  Hello hello = RawPeer::GoodHello();
  hello.ticket = ticket.sealed;
  hello.cluster = ticket.cluster;
  const Bytes greeting = RawPeer::HelloFrame(hello);
  std::unique_ptr<RawPeer> peer;
  uint64_t sent = 0;
  Counts counts;
  for (; counts.frames < frames; ++counts.frames) {
    if (peer == nullptr) {
      peer = Connect(address);
      sent = 0;
      ++counts.connections;
      if (random.Chance(0.8)) peer->Send(greeting);
    }
    if (!peer->Send(DrawFrame(random, kinds)) || AtEnd(*peer, ++sent)) peer.reset();
  }
  return counts;
}

// --- HTTP/2, as far as it takes to reach the router's methods.

std::string Http2(uint8_t type, uint8_t flags, uint32_t stream, const std::string& body) {
  std::string out;
  for (const size_t shift : {16, 8, 0}) out.push_back(static_cast<char>(body.size() >> shift));
  out.push_back(static_cast<char>(type));
  out.push_back(static_cast<char>(flags));
  for (const size_t shift : {24, 16, 8, 0}) out.push_back(static_cast<char>(stream >> shift));
  return out + body;
}

std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) +
         value;
}

std::string Call(Random& random, uint32_t stream) {
  static constexpr const char* kMethods[] = {"RegisterNode", "Heartbeat",       "WatchMap", "GetTicket",
                                             "GetStatus",    "ReportPeersGone", "Nothing"};
  const std::string headers =
      Header(":method", "POST") + Header(":scheme", "http") +
      Header(":path", std::string("/cistern.proto.Cluster/") + kMethods[random.Below(7)]) +
      Header(":authority", "x") + Header("te", "trailers") + Header("content-type", "application/grpc");
  // Protobuf of a kind: fields of random numbers and types, some with the length of a node id or a ticket.
  std::string message;
  for (uint64_t i = random.Below(6); i > 0; --i) {
    message.push_back(static_cast<char>(random.Below(128)));
    const uint64_t bytes = random.Below(random.Chance(0.1) ? 120 : 9);
    message.push_back(static_cast<char>(bytes));
    for (uint64_t b = 0; b < bytes; ++b) message.push_back(static_cast<char>(random.Next()));
  }
  std::string data(1, '\0');
  for (const size_t shift : {24, 16, 8, 0}) data.push_back(static_cast<char>(message.size() >> shift));
  return Http2(1, 4, stream, headers) + Http2(0, 1, stream, data + message);
}

Counts FloodRouter(const std::string& address, uint64_t frames, Random& random) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Http2(4, 0, 0, "");
  std::unique_ptr<RawPeer> peer;
  uint32_t stream = 1;
  uint64_t sent = 0;
  Counts counts;
  for (; counts.frames < frames; ++counts.frames) {
    std::string bytes;
    if (peer == nullptr) {
      peer = Connect("tcp:" + address);
      ++counts.connections;
      stream = 1;
      sent = 0;
      if (random.Chance(0.95)) bytes = preface;
    }
    if (random.Chance(0.95)) {
      bytes += Call(random, stream);
      stream += 2;
    } else {
      std::string body(random.Below(200), ' ');
      for (char& c : body) c = static_cast<char>(random.Next());
      bytes += Http2(static_cast<uint8_t>(random.Below(12)), static_cast<uint8_t>(random.Next()),
                     static_cast<uint32_t>(random.Below(4)), body);
    }
    if (random.Chance(0.01)) bytes[random.Below(bytes.size())] ^= 1;
    const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
    if (!peer->Send(ByteView(data, bytes.size())) || AtEnd(*peer, ++sent)) peer.reset();
  }
  return counts;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string port = argc == 5 ? argv[2] : "";
  if (port != "tcp" && port != "unix" && port != "grpc") {
    std::fprintf(stderr, "usage: wire_flood ROUTER tcp|unix|grpc FRAMES SEED\n");
    return 2;
  }
  const uint64_t frames = std::strtoull(argv[3], nullptr, 10);
  Random random(std::strtoull(argv[4], nullptr, 10));
  RouterLinkOptions options;
  options.router = argv[1];
  Counts counts;
  if (port == "grpc") {
    counts = FloodRouter(argv[1], frames, random);
  } else {
    RouterLink link(options, {[](const ClusterMap&) {}, [](const TicketGrant&) {}});
    if (const absl::Status ready = link.WaitReady(10 * kSecond); !ready.ok()) {
      std::fprintf(stderr, "%s\n", std::string(ready.message()).c_str());
      return 2;
    }
    const ShardAddress shard = link.map()->nodes.at(0).shards.at(0);
    counts = FloodNode(port == "tcp" ? "tcp:" + shard.tcp : "unix:" + shard.unix_name, *link.ticket(), frames,
                       random);
  }
  std::printf("{\"frames\": %lu, \"connections\": %lu}\n", counts.frames, counts.connections);
  return 0;
}
