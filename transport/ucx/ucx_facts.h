#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "transport/fabric.h"

// What UCX found on this machine, read from what it prints about itself, and what follows from it. Plain
// functions over text and paths, so that machines that are not at hand can be tested.
namespace cistern {

// Links out of ucp_context_print_info ("tcp/eth0") or ucp_ep_print_info (those of one connection): each once,
// in the order printed.
std::vector<std::string> ParseContextLinks(std::string_view printed);
std::vector<std::string> ParseEndpointLinks(std::string_view printed);

// rc, dc: the remote CPU sleeps while its memory is read. Neither ud nor tcp nor shared memory of 1.13.
bool IsOneSidedLink(std::string_view link);

// What `require_rdma` finds missing; OK when a link reads one-sidedly. `sys_infiniband` is
// /sys/class/infiniband, `dev_infiniband` /dev/infiniband.
absl::Status CheckRdma(const FabricFacts& facts, const std::string& sys_infiniband,
                       const std::string& dev_infiniband);

// GPUDirect when UCX handles CUDA memory, else staging through pinned host memory, with the reason.
void DecideGpuPath(bool cuda_memory, bool has_gpu, FabricFacts& facts);

}  // namespace cistern
