#include "cistern/client.h"
#include "client/client_impl.h"
#include "client/convert.h"

// Memory of the put window, and of the caller where a fabric writes into it.
namespace cistern {

void* Client::AllocateBuffer(size_t bytes) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return nullptr;
  MutexLock lock(&impl_->mutex_);
  return impl_->window_ != nullptr ? impl_->window_->Allocate(bytes) : nullptr;
}
void Client::FreeBuffer(void* buffer) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return;
  MutexLock lock(&impl_->mutex_);
  if (impl_->window_ != nullptr) (void)impl_->window_->Free(buffer);
}

Status Client::RegisterMemory(void* data, size_t bytes) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return ForkedStatus();
  constexpr size_t kGrain =
      4096;  // Pages of engines lie as they like; a read may be cut at a registration's end.
  MutexLock lock(&impl_->mutex_);
  return ToPublic(impl_->transport_->AddMemory(static_cast<std::byte*>(data), bytes, kGrain));
}
void Client::UnregisterMemory(void* data) {
  const Impl::Entry entry(impl_.get());
  if (!entry) return;
  MutexLock lock(&impl_->mutex_);
  impl_->transport_->RemoveMemory(static_cast<const std::byte*>(data));
}

}  // namespace cistern
