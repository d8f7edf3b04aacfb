#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/crc32c.h"
#include "transport/frame_reader.h"

// What a peer may send, as a stream, in chunks: the first byte says how the chunks are cut and what becomes
// of payloads, the rest is the stream. Checksums are made right where a header begins, so that inputs get
// behind them. Memory stays below what came plus the fixed buffers.
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
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0) return 0;
  std::vector<std::byte> scratch(512), memory;
  FrameReader reader(absl::MakeSpan(scratch));
  // Half of the inputs come through a ring; what the one before left in it goes first.
  static const Ring ring;
  if (data[0] >= 128) {
    for (std::byte old[4096]; ring.node->Read(old, sizeof(old)) > 0;) {
    }
    reader.UseRing(ring.node.get());
  } else if (data[0] % 4 < 2) {
    reader.ReadAhead();
  }
  bool open = true;
  for (size_t at = 0; at < stream.size() && open; at += chunk) {
    const size_t bytes = std::min(chunk, stream.size() - at);
    const iovec piece{stream.data() + at, bytes};
    const ssize_t put = data[0] >= 128 ? ring.client->Write(absl::MakeConstSpan(&piece, 1))
                                       : send(fds[0], piece.iov_base, bytes, 0);
    if (put != static_cast<ssize_t>(bytes)) std::abort();
    reader.StartRound();
    for (;;) {
      const FrameReader::Event event = reader.Next(fds[1]);
      if (event == FrameReader::Event::kNothing) break;
      if (event == FrameReader::Event::kClosed) std::abort();
      if (event == FrameReader::Event::kBad) {
        if (reader.error().ok()) std::abort();
        open = false;
        break;
      }
      if (event == FrameReader::Event::kPayload) {
        Fill(reader.plan(), reader.header().payload_bytes, memory);
        if (data[0] % 3 == 0 || !reader.StartPayload().ok()) reader.DrainPayload();
        if (data[0] % 5 == 0) reader.DrainIfArriving(reader.header().request_id);
      }
    }
  }
  close(fds[0]);
  close(fds[1]);
  return 0;
}
