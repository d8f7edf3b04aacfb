#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/crc32c.h"
#include "transport/frame_reader.h"

// What a peer may send, as a stream, in chunks: the first byte says how the chunks are cut and what becomes
// of payloads, the rest is the stream. Checksums are made right where a header begins, so that inputs get
// behind them. Memory stays below what came plus the fixed buffers. Each stream is read twice, plainly and
// ahead or through a ring: both readers must tell the same.
namespace {

using cistern::FrameReader;
using cistern::PayloadPlan;

void Repair(std::vector<std::byte>& stream) {
  for (size_t at = 0; at + cistern::kFrameHeaderBytes <= stream.size();) {
    std::byte* header = stream.data() + at;
    cistern::StoreLe<uint32_t>(header, cistern::kFrameMagic);
    const auto body = cistern::LoadLe<uint32_t>(header + 16) % (stream.size() + 64);
    const size_t there = std::min<size_t>(body, stream.size() - at - cistern::kFrameHeaderBytes);
    if (there == body) {
      cistern::StoreLe<uint32_t>(header + 32, cistern::Crc32c(header + cistern::kFrameHeaderBytes, body));
      cistern::StoreLe<uint32_t>(header + 16, body);
    }
    cistern::StoreLe<uint32_t>(header + 36, cistern::Crc32c(header, 36));
    at += cistern::kFrameHeaderBytes + there + cistern::LoadLe<uint64_t>(header + 24) % 5000;
  }
}

// Pieces of 1000 bytes, every third one drained.
void Fill(PayloadPlan& plan, uint64_t bytes, std::vector<std::byte>& memory) {
  memory.resize(1000);
  for (uint64_t at = 0, i = 0; at < bytes && i < 4000; at += 1000, ++i) {
    PayloadPlan::Piece piece{std::min<uint64_t>(1000, bytes - at),
                             static_cast<uint32_t>(plan.segments.size()), 0};
    if (i % 3 != 2) {
      piece.segment_count = 1;
      plan.segments.push_back({memory.data(), piece.bytes});
    }
    plan.pieces.push_back(piece);
  }
}

struct Ring {
  std::unique_ptr<cistern::SharedRing> node = *cistern::SharedRing::Create();
  std::unique_ptr<cistern::SharedRing> client =
      *cistern::SharedRing::Join(cistern::UniqueFd(dup(node->fd())), node->bytes());
};

enum class Way : uint8_t { kSocket, kReadAhead, kRing };

// Everything that the owner is told of a stream, in order: it must not depend on the way that the bytes take.
class Told {
 public:
  Told(Way way, uint8_t kind) : kind_(kind), reader_(absl::MakeSpan(scratch_)) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds_) != 0) std::abort();
    if (way == Way::kReadAhead) reader_.ReadAhead();
    if (way != Way::kRing) return;
    static const Ring ring;
    for (std::byte old[4096]; ring.node->Read(old, sizeof(old)) > 0;) {  // What the input before left in it.
    }
    reader_.UseRing(ring.node.get());
    ring_ = ring.client.get();
  }
  ~Told() {
    close(fds_[0]);
    close(fds_[1]);
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

  // False: the reader takes no more.
  bool Chunk(std::byte* data, size_t bytes) {
    const iovec piece{data, bytes};
    const ssize_t put =
        ring_ != nullptr ? ring_->Write(absl::MakeConstSpan(&piece, 1)) : send(fds_[0], data, bytes, 0);
    if (put != static_cast<ssize_t>(bytes)) std::abort();
    do {
      reader_.StartRound();
      if (!Round()) return false;
      std::fill(scratch_.begin(), scratch_.end(), std::byte{0xa5});  // Another reader has its turn.
    } while (reader_.burst_bytes() > 0);
    return true;
  }
  const std::vector<uint64_t>& events() const { return events_; }

 private:
  bool Round() {
    for (;;) {
      const FrameReader::Event event = reader_.Next(fds_[1]);
      if (event == FrameReader::Event::kNothing) return true;
      if (event == FrameReader::Event::kClosed) std::abort();
      events_.push_back(static_cast<uint64_t>(event));
      if (event == FrameReader::Event::kBad) {
        if (reader_.error().ok()) std::abort();
        return false;
      }
      events_.push_back(reader_.header().request_id);
      if (event == FrameReader::Event::kPayload) {
        Fill(reader_.plan(), reader_.header().payload_bytes, memory_);
        if (kind_ % 3 == 0 || !reader_.StartPayload().ok()) reader_.DrainPayload();
        if (kind_ % 5 == 0) reader_.DrainIfArriving(reader_.header().request_id);
      }
      if (event != FrameReader::Event::kFrame) continue;
      events_.push_back(cistern::Crc32c(reader_.body().data(), reader_.body().size()));
      events_.push_back(reader_.drained_bytes());
      if (reader_.draining()) continue;
      events_.insert(events_.end(), reader_.piece_crcs().begin(), reader_.piece_crcs().end());
    }
  }

  const uint8_t kind_;
  int fds_[2];
  cistern::SharedRing* ring_ = nullptr;
  std::vector<std::byte> scratch_ = std::vector<std::byte>(512), memory_;
  FrameReader reader_;
  std::vector<uint64_t> events_;
};

}  // namespace

namespace cistern {

// Streams to start from; the driver looks for this by its name.
void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  std::string stream;
  for (const size_t body : {size_t{0}, size_t{70}, size_t{9000}, size_t{200}}) {
    FrameHeader header;
    header.type = FrameType::kPlanReply;
    header.request_id = body;
    header.body_bytes = static_cast<uint32_t>(body);
    header.payload_bytes = body == 70 ? 6000 : body == 200 ? 1 : 0;
    const std::string text(body, 'b');
    header.body_crc = Crc32c(text.data(), text.size());
    std::byte raw[kFrameHeaderBytes];
    EncodeFrameHeader(header, raw);
    stream += std::string(reinterpret_cast<const char*>(raw), kFrameHeaderBytes) + text +
              std::string(header.payload_bytes, 'p');
  }
  add("as_they_are", '\x08' + stream);
  add("small_chunks", '\x01' + stream);
  add("drained", '\x03' + stream);
  add("cancelled", '\x05' + stream);
  add("in_a_ring", '\xff' + stream);
  add("in_a_ring_small_chunks", '\x80' + stream);
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 60'000) return 0;
  const size_t chunk = 64 + size_t{data[0]} * 64;
  std::vector<std::byte> stream(reinterpret_cast<const std::byte*>(data) + 1,
                                reinterpret_cast<const std::byte*>(data) + size);
  if (data[0] % 8 != 0) Repair(stream);
  Told plain(Way::kSocket, data[0]), other(data[0] >= 128 ? Way::kRing : Way::kReadAhead, data[0]);
  for (Told* reader : {&plain, &other}) {
    for (size_t at = 0; at < stream.size(); at += chunk) {
      if (!reader->Chunk(stream.data() + at, std::min(chunk, stream.size() - at))) break;
    }
  }
  if (plain.events() != other.events()) std::abort();
  return 0;
}
