#include "core/check.h"
#include "core/status_macros.h"
#include "transport/fabric_module.h"
#include "transport/ucx/ucx_transport.h"

// The entry of libcistern-ucx.so.
namespace cistern {
namespace {

absl::StatusOr<std::shared_ptr<FabricDomain>> OpenUcx(const FabricOptions& options) {
  CISTERN_ASSIGN_OR_RETURN(std::shared_ptr<UcxContext> context, UcxContext::Open(options));
  return std::shared_ptr<FabricDomain>(std::move(context));
}

absl::StatusOr<std::unique_ptr<Fabric>> MakeUcx(std::shared_ptr<FabricDomain> domain, Clock& clock,
                                                FabricThreads threads) {
  CISTERN_CHECK(domain != nullptr);
  // OpenUcx makes the only kind of domain there is.
  CISTERN_ASSIGN_OR_RETURN(
      std::unique_ptr<UcxTransport> transport,
      UcxTransport::Create(std::static_pointer_cast<UcxContext>(std::move(domain)), clock, threads));
  return std::unique_ptr<Fabric>(std::move(transport));
}

constexpr FabricModule kModule = {kFabricModuleVersion, OpenUcx, MakeUcx};

}  // namespace
}  // namespace cistern

extern "C" __attribute__((visibility("default"))) const cistern::FabricModule* cistern_fabric_module() {
  return &cistern::kModule;
}
