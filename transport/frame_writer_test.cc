#include "transport/frame_writer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <utility>

#include "core/testing/failing_new.h"
#include "transport/unique_fd.h"

// What a writer does when memory ends in the middle of a frame.
namespace cistern {
namespace {

TEST(FrameWriter, HalfAFrameIsUndoneWhenMemoryEnds) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "no allocation fails where ThreadSanitizer has the operators";
#endif
  const Bytes body(3000, std::byte{7}), bytes(5000, std::byte{9});
  const std::vector<ConstSegment> payload(40, ConstSegment{.data = bytes.data(), .bytes = 50});
  const auto frame = [&](uint64_t id) {
    return OutFrame{
        .type = FrameType::kPut, .request_id = id, .body = body, .payload = payload, .cookie = id};
  };
  bool past_all = false;
  for (int at = 0; !past_all; ++at) {
    ASSERT_LT(at, 100);
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const UniqueFd out(ends[0]), in(ends[1]);
    FrameWriter writer;
    ASSERT_TRUE(writer.Push(frame(1), kWireVersionMax).ok());
    bool thrown = false;
    t_allocations_left = at;
    try {
      ASSERT_TRUE(writer.Push(frame(2), kWireVersionMax).ok());
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    past_all = std::exchange(t_allocations_left, -1) >= 0;
    EXPECT_NE(thrown, past_all);
    ASSERT_TRUE(writer.Push(frame(3), kWireVersionMax).ok());
    std::vector<uint64_t> sent;
    ASSERT_EQ(writer.Write(out.get(), sent), FrameWriter::Outcome::kDrained);
    const std::vector<uint64_t> wanted =
        thrown ? std::vector<uint64_t>{1, 3} : std::vector<uint64_t>{1, 2, 3};
    EXPECT_EQ(sent, wanted);
    std::vector<uint64_t> arrived;
    Bytes raw(64 << 10);
    const ssize_t got = ::recv(in.get(), raw.data(), raw.size(), MSG_DONTWAIT);
    ASSERT_GT(got, 0);
    for (size_t read = 0; read < static_cast<size_t>(got);) {
      const auto header = DecodeFrameHeader(ByteView(raw).subspan(read, kFrameHeaderBytes));
      ASSERT_TRUE(header.ok()) << at << ": " << header.status();
      arrived.push_back(header->request_id);
      read += kFrameHeaderBytes + header->body_bytes + header->pad_bytes + header->payload_bytes;
    }
    EXPECT_EQ(arrived, wanted) << at;
  }
}

}  // namespace
}  // namespace cistern
