#include "transport/loopback_network.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/crc32c.h"
#include "core/make_room.h"
#include "transport/loopback_internal.h"
#include "transport/loopback_transport.h"

namespace cistern {
namespace {

// Gathers [from, from + bytes) of a list of segments.
void Gather(const std::vector<ConstSegment>& segments, size_t from, size_t bytes, Bytes& out) {
  out.clear();
  out.reserve(bytes);
  for (const ConstSegment& segment : segments) {
    if (from >= segment.bytes) {
      from -= segment.bytes;
      continue;
    }
    const size_t take = std::min(segment.bytes - from, bytes);
    out.insert(out.end(), segment.data + from, segment.data + from + take);
    bytes -= take;
    from = 0;
  }
}

void FlipBit(Bytes& bytes, uint64_t where) { bytes[where / 8] ^= std::byte{1} << (where % 8); }

}  // namespace

LoopbackNetwork::LoopbackNetwork(SimClock& clock, uint64_t seed) : clock_(clock), random_(seed) {}
LoopbackNetwork::~LoopbackNetwork() { CISTERN_CHECK(endpoints_.empty()); }

void LoopbackNetwork::SetFaults(const std::string& from, const std::string& to, const LinkFaults& faults) {
  faults_[{from, to}] = faults;
}

const LinkFaults& LoopbackNetwork::FaultsOf(const std::string& from, const std::string& to) const {
  const auto found = faults_.find({from, to});
  return found == faults_.end() ? default_faults_ : found->second;
}

Nanos LoopbackNetwork::Draw(Nanos from, Nanos to) {
  return to <= from ? from : from + static_cast<Nanos>(random_.Below(static_cast<uint64_t>(to - from) + 1));
}

void LoopbackNetwork::PartitionOneWay(const std::string& from, const std::string& to) {
  cuts_.insert({from, to});
}

void LoopbackNetwork::Partition(const std::string& a, const std::string& b) {
  PartitionOneWay(a, b);
  PartitionOneWay(b, a);
}

void LoopbackNetwork::Heal(const std::string& a, const std::string& b) {
  cuts_.erase({a, b});
  cuts_.erase({b, a});
  for (auto& [id, connection] : connections_)
    for (const int direction : {0, 1}) Requeue(*connection, direction);
}

// Sends what waited behind a cut on its way again, in its order.
void LoopbackNetwork::Requeue(Connection& connection, int direction) {
  Connection::Direction& way = connection.directions[direction];
  const std::string& from = connection.ends[direction].host;
  const std::string& to = connection.ends[1 - direction].host;
  if (way.parked.empty() || IsCut(from, to)) return;
  const LinkFaults& faults = FaultsOf(from, to);
  Nanos at = clock_.Now() + Draw(faults.delay_min, faults.delay_max);
  ++way.heals;
  for (std::unique_ptr<Event>& event : way.parked) {
    at += Draw(0, faults.chunk_max);
    event->heals = way.heals;
    Push(at, std::move(event));
  }
  way.parked.clear();
  way.settled = at;
  way.last = std::max(way.last, at);
}

void LoopbackNetwork::ResetConnections(const std::string& a, const std::string& b) {
  for (auto& [id, connection] : connections_) {
    const std::string& one = connection->ends[0].host;
    const std::string& two = connection->ends[1].host;
    if (!((one == a && two == b) || (one == b && two == a))) continue;
    for (int side = 0; side < 2; ++side) {
      if (!connection->ends[side].open) continue;
      auto event = std::make_unique<Event>();
      event->kind = Event::Kind::kReset;
      event->connection = id;
      event->side = side;
      event->why = absl::UnavailableError("connection reset");
      Push(clock_.Now() + Draw(0, kMillisecond), std::move(event));
    }
  }
}

void LoopbackNetwork::CrashHost(const std::string& host, Crash how) {
  const std::vector<LoopbackTransport*> endpoints = endpoints_;
  for (LoopbackTransport* endpoint : endpoints) {
    if (endpoint->host() != host || endpoint->crashed_) continue;
    endpoint->crashed_ = true;
    endpoint->inbox_.clear();
    endpoint->deferred_frames_ = 0;
    for (auto& [id, peer] : endpoint->peers_) Close(peer->connection, peer->side, how == Crash::kSilent);
    endpoint->peers_.clear();
    std::erase_if(names_, [&](const auto& entry) { return entry.second == endpoint; });
  }
}

Nanos LoopbackNetwork::NextEventAt() const { return queue_.empty() ? kNever : queue_.front()->at; }

void LoopbackNetwork::Push(Nanos at, std::unique_ptr<Event> event) {
  event->at = at;
  event->sequence = next_sequence_++;
  queue_.push_back(std::move(event));
  std::push_heap(queue_.begin(), queue_.end(), Later());
}

bool LoopbackNetwork::Route() {
  bool any = false;
  while (!queue_.empty() && queue_.front()->at <= clock_.Now()) {
    std::pop_heap(queue_.begin(), queue_.end(), Later());
    std::unique_ptr<Event> event = std::move(queue_.back());
    queue_.pop_back();
    Dispatch(std::move(event));
    any = true;
  }
  return any;
}

void LoopbackNetwork::Dispatch(std::unique_ptr<Event> event) {
  Connection* connection = Find(event->connection);
  if (connection == nullptr) return;
  const int direction = 1 - event->side;
  Connection::Direction& way = connection->directions[direction];
  Connection::End& from = connection->ends[direction];
  Connection::End& to = connection->ends[event->side];
  const bool travels = event->kind != Event::Kind::kSent && event->kind != Event::Kind::kHandshakeTimeout;
  if (travels && event->heals != way.heals && event->at <= way.settled) {  // Else it would overtake.
    event->heals = way.heals;
    Push(way.settled, std::move(event));
    return;
  }
  if (travels && (!way.parked.empty() || IsCut(from.host, to.host))) {
    ++injected_["parked"];
    way.parked.push_back(std::move(event));
    return;
  }
  const bool is_frame = event->kind == Event::Kind::kFrame || event->kind == Event::Kind::kChunk;
  if (is_frame && !StageChunk(*connection, *event)) return;
  if (to.endpoint == nullptr && to.open) {  // Nobody has accepted yet.
    const auto found = names_.find(connection->name);
    if (event->kind == Event::Kind::kFrame && found != names_.end()) found->second->Accept(connection->id);
    if (to.endpoint == nullptr) {
      Close(connection->id, event->side, false);
      return;
    }
  }
  if (!to.open) {
    // A host that died silently and is back answers a stranger's segment with a reset.
    if (is_frame && from.open && names_.count(connection->name) != 0)
      Close(connection->id, event->side, false);
    return;
  }
  const bool first_half = event->kind == Event::Kind::kPullHalf;
  if (first_half || event->kind == Event::Kind::kPullEnd) PullHalf(*connection, *event);
  if (!first_half) to.endpoint->inbox_.push_back(std::move(event));
}

// Reads the sender's memory for one chunk. False when the frame goes no further.
bool LoopbackNetwork::StageChunk(Connection& connection, Event& event) {
  const int direction = 1 - event.side;
  Connection::Direction& way = connection.directions[direction];
  Frame& frame = *event.frame;
  const bool last =
      frame.payload_bytes == 0 || (event.kind == Event::Kind::kChunk && event.chunk + 1 == kLoopbackChunks);
  if (last && frame.counted) {
    frame.counted = false;
    --way.frames;
    way.body_bytes -= frame.wire.size();
  }
  if (frame.payload_bytes == 0) return true;
  Connection::End& from = connection.ends[direction];
  if (!from.open) return false;  // The memory is the sender's own again.
  if (event.kind == Event::Kind::kFrame) return true;
  const uint64_t begin = frame.payload_bytes * event.chunk / kLoopbackChunks;
  const uint64_t end = frame.payload_bytes * (event.chunk + 1) / kLoopbackChunks;
  Gather(frame.payload, begin, end - begin, event.bytes);
  if (frame.flip_payload && last && !event.bytes.empty())
    FlipBit(event.bytes, random_.Below(event.bytes.size() * 8));
  if (last && frame.cookie != 0) {
    auto sent = std::make_unique<Event>();
    sent->kind = Event::Kind::kSent;
    sent->connection = connection.id;
    sent->side = direction;
    sent->cookie = frame.cookie;
    sent->at = clock_.Now();
    from.endpoint->inbox_.push_back(std::move(sent));
  }
  return true;
}

// Reads half of what a pull wants, so that a slot that is written anew in between shows up torn; the trailer
// comes last.
void LoopbackNetwork::PullHalf(Connection& connection, Event& event) {
  PullOp& pull = *event.pull;
  if (pull.result.result != PartResult::kOk) return;
  const size_t bytes = pull.staged.size();
  const std::byte* from = pull.memory->data() + pull.offset;
  if (event.kind == Event::Kind::kPullHalf) {
    std::memcpy(pull.staged.data(), from, bytes / 2);
    return;
  }
  std::memcpy(pull.staged.data() + bytes / 2, from + bytes / 2, bytes - bytes / 2);
  if (pull.trailer_offset != 0) {
    std::memcpy(&pull.result.trailer, pull.memory->data() + pull.trailer_offset, sizeof(SlotTrailer));
  }
  if (pull.flip && bytes != 0) FlipBit(pull.staged, random_.Below(bytes * 8));
  Observe("pull", connection, 1 - event.side, FrameType{}, pull.pull_id, bytes);
}

void LoopbackNetwork::Register(const std::string& name, LoopbackTransport* endpoint) {
  CISTERN_CHECK(names_.emplace(name, endpoint).second);
}

void LoopbackNetwork::Unregister(LoopbackTransport* endpoint) {
  std::erase_if(names_, [&](const auto& entry) { return entry.second == endpoint; });
  std::erase(endpoints_, endpoint);
}

uint32_t LoopbackNetwork::Open(LoopbackTransport* from, PeerId peer, const std::string& name) {
  auto connection = std::make_unique<Connection>();
  connection->id = next_connection_++;
  connection->name = name;
  connection->ends[0].endpoint = from;
  connection->ends[0].peer = peer;
  connection->ends[0].host = from->host();
  // "node-1/0" is on host "node-1", whether or not it listens right now.
  connection->ends[1].host = name.substr(0, name.find('/'));
  auto timeout = std::make_unique<Event>();
  timeout->kind = Event::Kind::kHandshakeTimeout;
  timeout->connection = connection->id;
  timeout->side = 0;
  Push(clock_.Now() + kHandshakeDeadline, std::move(timeout));
  const uint32_t id = connection->id;
  connections_.emplace(id, std::move(connection));
  return id;
}

LoopbackNetwork::Connection* LoopbackNetwork::Find(uint32_t connection) {
  const auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : found->second.get();
}

absl::Status LoopbackNetwork::SendFrame(uint32_t id, int side, const OutFrame& out) {
  Connection* connection = Find(id);
  CISTERN_CHECK(connection != nullptr);
  Connection::Direction& way = connection->directions[side];
  const std::string& from = connection->ends[side].host;
  const std::string& to = connection->ends[1 - side].host;
  const LinkFaults& faults = FaultsOf(from, to);
  if (way.frames >= kSendQueueFramesMax || way.body_bytes + out.body.size() > kSendQueueBytesMax) {
    return absl::ResourceExhaustedError("loopback send queue full");
  }
  auto frame = std::make_shared<Frame>();
  frame->cookie = out.cookie;
  frame->payload.assign(out.payload.begin(), out.payload.end());
  for (const ConstSegment& segment : frame->payload) frame->payload_bytes += segment.bytes;
  FrameHeader header;
  header.type = out.type;
  header.flags = out.flags;
  header.request_id = out.request_id;
  header.body_bytes = static_cast<uint32_t>(out.body.size());
  header.payload_bytes = frame->payload_bytes;
  header.body_crc = Crc32c(out.body.data(), out.body.size());
  frame->wire.resize(kFrameHeaderBytes);
  EncodeFrameHeader(header, frame->wire.data());
  frame->wire.insert(frame->wire.end(), out.body.begin(), out.body.end());
  Observe("send", *connection, side, out.type, out.request_id, out.body.size() + frame->payload_bytes);
  if (random_.Chance(faults.reset)) {
    ++injected_["reset"];
    ResetConnections(from, to);
    return absl::OkStatus();
  }
  if (random_.Chance(faults.flip_body)) {
    ++injected_["flip_body"];
    FlipBit(frame->wire, random_.Below(frame->wire.size() * 8));
  }
  if (frame->payload_bytes != 0 && random_.Chance(faults.flip_payload)) {
    ++injected_["flip_payload"];
    frame->flip_payload = true;
  }
  Nanos at = clock_.Now() + Draw(faults.delay_min, faults.delay_max);
  if (random_.Chance(faults.spike)) at += Draw(0, faults.spike_max);
  at = std::max(at, way.last);
  const uint32_t chunks = frame->payload_bytes == 0 ? 0 : kLoopbackChunks;
  std::vector<std::unique_ptr<Event>> events;
  const auto add = [&](Nanos when, uint32_t i) {
    Event& event = *events.emplace_back(std::make_unique<Event>());
    event.at = when;
    event.kind = i == 0 ? Event::Kind::kFrame : Event::Kind::kChunk;
    event.connection = id;
    event.side = 1 - side;
    event.frame = frame;
    event.chunk = i == 0 ? 0 : i - 1;
  };
  add(at, 0);
  for (uint32_t i = 1; i <= chunks; ++i) add(at += Draw(0, faults.chunk_max), i);
  if (chunks == 0 && random_.Chance(faults.twice)) {
    ++injected_["twice"];
    add(at + Draw(0, faults.spike_max), 0);
  }
  MakeRoom(queue_, events.size());  // All of the frame goes, or nothing.
  ++way.frames;
  way.body_bytes += frame->wire.size();
  way.last = events.back()->at;
  for (auto& event : events) {
    at = event->at;
    Push(at, std::move(event));
  }
  return absl::OkStatus();
}

void LoopbackNetwork::StartPull(uint32_t id, int side, const PullRequest& request,
                                std::shared_ptr<MemoryRegion> memory) {
  Connection* connection = Find(id);
  CISTERN_CHECK(connection != nullptr);
  const LinkFaults& faults = FaultsOf(connection->ends[1 - side].host, connection->ends[side].host);
  auto pull = std::make_shared<PullOp>();
  pull->pull_id = request.pull_id;
  pull->offset = request.offset;
  pull->trailer_offset = request.trailer_offset;
  pull->target.assign(request.target.begin(), request.target.end());
  const uint64_t limit = memory == nullptr ? 0 : memory->bytes();
  const auto inside = [limit](uint64_t from, uint64_t bytes) {
    return from <= limit && bytes <= limit - from;
  };
  if (memory == nullptr || !inside(request.offset, request.bytes) ||
      (request.trailer_offset != 0 &&
       (request.trailer_offset % 8 != 0 || !inside(request.trailer_offset, sizeof(SlotTrailer))))) {
    pull->result.result = PartResult::kInvalid;
  } else {
    pull->staged.resize(request.bytes);
    if (random_.Chance(faults.flip_payload)) {
      ++injected_["flip_payload"];
      pull->flip = true;
    }
  }
  pull->memory = std::move(memory);
  Nanos at = clock_.Now() + Draw(faults.delay_min, faults.delay_max);
  for (const Event::Kind kind : {Event::Kind::kPullHalf, Event::Kind::kPullEnd}) {
    auto event = std::make_unique<Event>();
    event->kind = kind;
    event->connection = id;
    event->side = side;
    event->pull = pull;
    Push(at, std::move(event));
    at += Draw(0, faults.chunk_max);
    if (random_.Chance(faults.spike)) at += Draw(0, faults.spike_max);
  }
}

void LoopbackNetwork::Close(uint32_t id, int side, bool silent) {
  Connection* connection = Find(id);
  if (connection == nullptr) return;
  Connection::End& mine = connection->ends[side];
  Connection::End& other = connection->ends[1 - side];
  mine.open = false;
  mine.endpoint = nullptr;
  if (!other.open) {
    connections_.erase(id);
    return;
  }
  if (silent) return;
  const LinkFaults& faults = FaultsOf(mine.host, other.host);
  auto event = std::make_unique<Event>();
  event->kind = Event::Kind::kReset;
  event->connection = id;
  event->side = 1 - side;
  event->why = absl::UnavailableError("connection closed by " + mine.host);
  const Nanos at = clock_.Now() + Draw(faults.delay_min, faults.delay_max);
  Push(std::max(at, connection->directions[side].last), std::move(event));
}

void LoopbackNetwork::Observe(std::string_view what, const Connection& connection, int direction,
                              FrameType type, uint64_t id, uint64_t bytes) {
  if (!observer_) return;
  observer_({clock_.Now(), what, connection.ends[direction].host, connection.ends[1 - direction].host,
             connection.id, type, id, bytes});
}

}  // namespace cistern
