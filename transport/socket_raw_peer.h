#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/chain.h"
#include "core/crc32c.h"
#include "transport/messages.h"
#include "transport/socket_address.h"
#include "transport/unique_fd.h"

// For tests: the other end of a SocketTransport as an enemy or a stranger would write it, byte by byte.
namespace cistern {

class RawPeer {
 public:
  // Blocking; a connection over loopback or unix is there at once.
  explicit RawPeer(const std::string& address) {
    fd_ = std::move(*SocketAddress::Parse(address)->Connect());
    pollfd ready{fd_.get(), POLLOUT, 0};
    poll(&ready, 1, 5000);
  }
  explicit RawPeer(UniqueFd fd) : fd_(std::move(fd)) {}

  static Bytes Frame(FrameHeader header, ByteView body) {
    header.body_bytes = static_cast<uint32_t>(body.size());
    header.body_crc = Crc32c(body.data(), body.size());
    Bytes out(kFrameHeaderBytes);
    EncodeFrameHeader(header, out.data());
    out.insert(out.end(), body.begin(), body.end());
    return out;
  }
  static Hello GoodHello() {
    Hello hello;
    hello.key_algorithm = kKeyAlgorithm;
    hello.ticket = "good";
    return hello;
  }
  static Bytes HelloFrame(const Hello& hello, uint8_t version = kWireVersionMax) {
    Bytes body;
    hello.Encode(body);
    FrameHeader header;
    header.type = FrameType::kHello;
    header.version = version;
    return Frame(header, body);
  }
  // False when the other side has closed. Never waits for room.
  bool Send(ByteView bytes, const std::vector<int>& fds = {}) {
    iovec iov{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 250)] = {};
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
    }
    return sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
  }
  // What has come so far is added to received(); false once the other side has closed.
  bool Drain() {
    std::byte buffer[65536];
    for (;;) {
      const ssize_t got = recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
      if (got > 0) {
        received_.insert(received_.end(), buffer, buffer + got);
        continue;
      }
      return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
  }
  // The same once, with descriptors that came along.
  bool DrainWithFds(std::vector<UniqueFd>& fds) {
    std::byte buffer[4096];
    iovec iov{buffer, sizeof(buffer)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kRegionsPerPeerMax)] = {};
    msghdr message{};
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    received_.insert(received_.end(), buffer, buffer + got);
    const cmsghdr* rights = CMSG_FIRSTHDR(&message);
    for (size_t i = 0; rights != nullptr && i < (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
    return true;
  }
  const Bytes& received() const { return received_; }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  Bytes received_;
};

}  // namespace cistern
