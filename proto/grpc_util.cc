#include "proto/grpc_util.h"

#include <algorithm>
#include <utility>

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include "proto/control.h"

namespace cistern {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Same numbers on both sides.
  return grpc::Status(static_cast<grpc::StatusCode>(static_cast<int>(status.code())),
                      std::string(status.message()));
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

void KeepGrpc() {
  static const bool kept = [] {
    grpc_init();
    return true;
  }();
  (void)kept;
}

std::shared_ptr<grpc::Channel> MakeControlChannel(const std::string& address, Nanos silent_max) {
  KeepGrpc();
  const int silent_ms = static_cast<int>(std::max<Nanos>(silent_max / kMillisecond, 2));
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 60'000);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 60'000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, silent_ms / 2);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, silent_ms / 2);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetMaxReceiveMessageSize(kControlMessageBytesMax);
  args.SetMaxSendMessageSize(kControlMessageBytesMax);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args);
}

void CallGuard::Stop() {
  const absl::MutexLock lock(&mutex_);
  stopped_ = true;
  if (call_ != nullptr) call_->TryCancel();
}

bool CallGuard::stopped() const {
  const absl::MutexLock lock(&mutex_);
  return stopped_;
}

bool CallGuard::WaitFor(Nanos time) {
  const absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&stopped_), absl::Nanoseconds(time));
  return !stopped_;
}

CallGuard::Scope::Scope(CallGuard& guard, grpc::ClientContext& context) : guard_(guard) {
  const absl::MutexLock lock(&guard_.mutex_);
  outer_ = std::exchange(guard_.call_, &context);
  if (guard_.stopped_) context.TryCancel();  // Takes effect when the call begins.
}

CallGuard::Scope::~Scope() {
  const absl::MutexLock lock(&guard_.mutex_);
  guard_.call_ = outer_;
  // Stop has only seen the inner call.
  if (guard_.stopped_ && outer_ != nullptr) outer_->TryCancel();
}

}  // namespace cistern
