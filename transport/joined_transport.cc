#include "transport/joined_transport.h"

#include <sys/epoll.h>

#include <cerrno>
#include <utility>

namespace cistern {

absl::StatusOr<std::unique_ptr<JoinedTransport>> JoinedTransport::Create(std::unique_ptr<Transport> sockets,
                                                                         std::unique_ptr<Fabric> fabric) {
  std::unique_ptr<JoinedTransport> joined(new JoinedTransport(std::move(sockets), std::move(fabric)));
  joined->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {joined->sockets_->WaitFd(), joined->fabric_->WaitFd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(joined->epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return absl::ErrnoToStatus(errno, "the descriptor of two transports");
  }
  return joined;
}

void JoinedTransport::SetHandler(TransportHandler* handler) {
  sockets_->SetHandler(handler);
  fabric_->SetHandler(handler);
}

absl::StatusOr<PeerId> JoinedTransport::Connect(const std::string& address, const ConnectOptions& options) {
  return address.starts_with("ucx:") ? fabric_->Connect(address, options)
                                     : sockets_->Connect(address, options);
}

absl::Status JoinedTransport::AddMemory(std::byte* data, size_t bytes, size_t grain) {
  absl::Status added = sockets_->AddMemory(data, bytes, grain);
  return added.ok() ? fabric_->AddMemory(data, bytes, grain) : added;
}

void JoinedTransport::RemoveMemory(const std::byte* data) {
  sockets_->RemoveMemory(data);
  fabric_->RemoveMemory(data);
}

std::map<std::string, uint64_t> JoinedTransport::counters() const {
  std::map<std::string, uint64_t> all = sockets_->counters();
  all.merge(fabric_->counters());
  return all;
}

bool JoinedTransport::Poll() {
  const bool moved = sockets_->Poll();
  return fabric_->Poll() || moved;
}

bool JoinedTransport::PrepareWait() {
  const bool sockets = sockets_->PrepareWait();
  return fabric_->PrepareWait() && sockets;
}

}  // namespace cistern
