#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/fabric.h"
#include "transport/ucx/registrations.h"

namespace cistern {

struct RkeyDestroy {
  void operator()(ucp_rkey_h rkey) const noexcept { ucp_rkey_destroy(rkey); }
};
// Permission to read one registered chunk through one endpoint. Destroyed when no get uses it any more.
using RkeyHandle = std::unique_ptr<std::remove_pointer_t<ucp_rkey_h>, RkeyDestroy>;

// The UCX context of a process: devices, protection domain, settings. Workers and memory hang on it.
// Owners (shared): the transports of the process's shards, and whoever opened it. Thread: any; UCX locks it.
class UcxContext final : public FabricDomain, public Registrar {
 public:
  static absl::StatusOr<std::shared_ptr<UcxContext>> Open(const FabricOptions& options);
  ~UcxContext() override;
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h get() const { return context_; }
  const FabricOptions& options() const { return options_; }
  const FabricFacts& facts() const override { return facts_; }

  // Handles are ucp_mem_h.
  absl::StatusOr<void*> Register(std::byte* data, size_t bytes) override;
  void Unregister(void* handle) override;
  // What a peer needs to read the memory. Fails above kRkeyBytesMax.
  absl::StatusOr<std::vector<std::byte>> PackKey(void* handle) const;

 private:
  explicit UcxContext(const FabricOptions& options) : options_(options) {}
  absl::Status Init();

  const FabricOptions options_;
  ucp_context_h context_ = nullptr;
  FabricFacts facts_;
};

absl::Status UcxError(ucs_status_t status, absl::string_view what);

}  // namespace cistern
