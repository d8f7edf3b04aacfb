#include "transport/frame_reader.h"

#include <algorithm>

#include "core/crc32c.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/socket_raw_peer.h"

namespace cistern {
namespace {

constexpr int kFrames = 300;

Bytes Filled(Random& random, size_t bytes) {
  Bytes out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random.Next());
  return out;
}

struct Sent {
  Bytes body;
  Bytes payload;
};

// One connection: frames drawn by `random`, those with payloads in runs, cut anywhere on their way.
class Line {
 public:
  Line(absl::Span<std::byte> scratch, uint64_t seed) : reader_(scratch), random_(seed) {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    ours_ = UniqueFd(fds[0]);
    theirs_ = UniqueFd(fds[1]);
    reader_.ReadAhead();
    for (int i = 0; i < kFrames; ++i) Draw(i / 10 % 2 == 0);
  }
  // A piece of the stream, then a round of the reader.
  void Step() {
    const size_t most = size_t{1} << random_.Below(18);
    const size_t bytes = std::min<size_t>(stream_.size() - at_, 1 + random_.Below(most));
    const ssize_t put = send(theirs_.get(), stream_.data() + at_, bytes, MSG_NOSIGNAL);
    if (put > 0) at_ += static_cast<size_t>(put);
    reader_.StartRound();
    while (true) {
      const FrameReader::Event event = reader_.Next(ours_.get());
      if (event == FrameReader::Event::kNothing) return;
      ASSERT_NE(event, FrameReader::Event::kBad) << reader_.error();
      ASSERT_NE(event, FrameReader::Event::kClosed);
      if (event == FrameReader::Event::kPayload) TakePayload();
      if (event == FrameReader::Event::kFrame) Check();
    }
  }
  bool done() const { return got_ == sent_.size(); }

 private:
  void Draw(bool payload) {
    Sent& frame = sent_.emplace_back();
    frame.body = Filled(random_, random_.Chance(0.1) ? 5000 + random_.Below(60'000) : random_.Below(300));
    if (payload) frame.payload = Filled(random_, 1 + random_.Below(size_t{1} << random_.Below(18)));
    FrameHeader header;
    header.type = FrameType::kPlanReply;
    header.payload_bytes = frame.payload.size();
    const Bytes head = RawPeer::Frame(header, frame.body);
    stream_.insert(stream_.end(), head.begin(), head.end());
    stream_.insert(stream_.end(), frame.payload.begin(), frame.payload.end());
  }
  void TakePayload() {
    ASSERT_LT(got_, sent_.size());
    landed_.assign(sent_[got_].payload.size(), std::byte{});
    reader_.plan().pieces.push_back({landed_.size(), 0, 1});
    reader_.plan().segments.push_back({landed_.data(), landed_.size()});
    ASSERT_TRUE(reader_.StartPayload().ok());
  }
  void Check() {
    ASSERT_LT(got_, sent_.size());
    const Sent& sent = sent_[got_++];
    ASSERT_TRUE(std::ranges::equal(reader_.body(), sent.body)) << "frame " << got_;
    if (sent.payload.empty()) return;
    ASSERT_EQ(landed_, sent.payload) << "frame " << got_;
    EXPECT_THAT(reader_.piece_crcs(), testing::ElementsAre(Crc32c(landed_.data(), landed_.size())));
  }

  FrameReader reader_;
  Random random_;
  UniqueFd ours_, theirs_;
  Bytes stream_;
  size_t at_ = 0;
  std::vector<Sent> sent_;
  size_t got_ = 0;
  Bytes landed_;
};

// What one connection received beyond a frame lies in memory that the next one's round writes.
TEST(FrameReader, ReadAheadOfOneConnectionIsUsedBeforeAnotherReads) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    Bytes scratch(kReceiveScratchBytes);
    Line a(absl::MakeSpan(scratch), seed), b(absl::MakeSpan(scratch), seed + 100);
    while (!a.done() || !b.done()) {
      ASSERT_NO_FATAL_FAILURE(a.Step());
      ASSERT_NO_FATAL_FAILURE(b.Step());
      std::ranges::fill(scratch, std::byte{0xee});
    }
  }
}

TEST(FrameReader, AFrameWithItsPayloadTakesOneReceive) {
  int fds[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  const UniqueFd ours(fds[0]), theirs(fds[1]);
  Bytes scratch(kReceiveScratchBytes), landed(60'000);
  FrameReader reader(absl::MakeSpan(scratch));
  reader.ReadAhead();
  FrameHeader header;
  header.type = FrameType::kPlanReply;
  header.payload_bytes = landed.size();
  Bytes stream = RawPeer::Frame(header, {});
  stream.resize(stream.size() + landed.size());
  for (const size_t all_at_once : {size_t{0}, stream.size()}) {  // The first one tells it what to expect.
    ASSERT_EQ(send(theirs.get(), stream.data(), stream.size(), 0), static_cast<ssize_t>(stream.size()));
    reader.StartRound();
    EXPECT_EQ(reader.Next(ours.get()), FrameReader::Event::kHeader);
    if (all_at_once > 0) {
      EXPECT_EQ(reader.burst_bytes(), all_at_once);
    }
    EXPECT_EQ(reader.Next(ours.get()), FrameReader::Event::kPayload);
    reader.plan().pieces.push_back({landed.size(), 0, 1});
    reader.plan().segments.push_back({landed.data(), landed.size()});
    ASSERT_TRUE(reader.StartPayload().ok());
    EXPECT_EQ(reader.Next(ours.get()), FrameReader::Event::kFrame);
    EXPECT_EQ(reader.Next(ours.get()), FrameReader::Event::kNothing);
  }
}

// See FrameReader::Landing: else some of TCP's cuts make each receive behind them slow.
TEST(FrameReader, AReceiveKeepsTheStreamsOwnAlignment) {
  for (const bool read_ahead : {false, true}) {
    int fds[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    const UniqueFd ours(fds[0]), theirs(fds[1]);
    alignas(kFrameAlignBytes) static std::array<std::byte, kReceiveScratchBytes> scratch;
    FrameReader reader(absl::MakeSpan(scratch));
    if (read_ahead) reader.ReadAhead();
    Random random(7);
    Bytes landed(100'000);
    FrameHeader header;
    header.type = FrameType::kPlanReply;
    header.payload_bytes = landed.size();
    Bytes stream = RawPeer::Frame(header, {});
    const Bytes payload = Filled(random, landed.size());
    stream.insert(stream.end(), payload.begin(), payload.end());
    for (size_t at = 0, bytes = 777; at < stream.size(); at += bytes, bytes = 10'007) {
      bytes = std::min(bytes, stream.size() - at);
      ASSERT_EQ(send(theirs.get(), stream.data() + at, bytes, 0), static_cast<ssize_t>(bytes));
      reader.StartRound();
      for (FrameReader::Event event; (event = reader.Next(ours.get())) != FrameReader::Event::kNothing;) {
        ASSERT_NE(event, FrameReader::Event::kBad);
        if (event != FrameReader::Event::kPayload) continue;
        reader.plan().pieces.push_back({landed.size(), 0, 1});
        reader.plan().segments.push_back({landed.data(), landed.size()});
        ASSERT_TRUE(reader.StartPayload().ok());
      }
      if (at == 0) continue;  // The first one goes where heads go.
      const auto sent = stream.begin() + static_cast<ptrdiff_t>(at);
      const auto found =
          std::search(scratch.begin(), scratch.end(), sent, sent + static_cast<ptrdiff_t>(bytes));
      ASSERT_NE(found, scratch.end());
      EXPECT_EQ(static_cast<size_t>(found - scratch.begin()) % kFrameAlignBytes, at % kFrameAlignBytes);
    }
    EXPECT_EQ(landed, payload);
  }
}

}  // namespace
}  // namespace cistern
