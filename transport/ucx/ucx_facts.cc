#include "transport/ucx/ucx_facts.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace cistern {
namespace {

void AddOnce(std::vector<std::string>& list, std::string_view item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.emplace_back(item);
}

std::string_view Words(absl::string_view text) { return {text.data(), text.size()}; }

}  // namespace

// Lines of interest: "#  resource 3  :  md 1  dev 2  flags -- tcp/lo"
std::vector<std::string> ParseContextLinks(std::string_view printed) {
  std::vector<std::string> links;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(printed.data(), printed.size()), '\n')) {
    if (line.find("resource ") == absl::string_view::npos) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (!words.empty() && words.back().find('/') != absl::string_view::npos)
      AddOnce(links, Words(words.back()));
  }
  return links;
}

// Lines of interest: "#     lane[0]:  4:rc_verbs/rxe0:1.0 md[3]   -> addr[0].md[3]/ib/sysdev[255] rma_bw#0 am
// ..."
std::vector<std::string> ParseEndpointLinks(std::string_view printed) {
  std::vector<std::string> links;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(printed.data(), printed.size()), '\n')) {
    if (line.find("lane[") == absl::string_view::npos) continue;
    for (absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      const size_t colon = word.find(':');
      if (word.find('/') == absl::string_view::npos || colon == absl::string_view::npos) continue;
      if (word.find_first_not_of("0123456789") != colon) continue;  // Resource number before the name.
      word.remove_prefix(colon + 1);
      const size_t dot = word.rfind('.');  // Path index behind the device.
      if (dot != absl::string_view::npos) word = word.substr(0, dot);
      AddOnce(links, Words(word));
      break;
    }
  }
  return links;
}

bool IsOneSidedLink(std::string_view link) { return link.starts_with("rc_") || link.starts_with("dc_"); }

absl::Status CheckRdma(const FabricFacts& facts, const std::string& sys_infiniband,
                       const std::string& dev_infiniband) {
  if (facts.rdma) return absl::OkStatus();
  const std::string has = absl::StrCat("--require-rdma: ", facts.library, " offers only ",
                                       facts.links.empty() ? "nothing" : absl::StrJoin(facts.links, ", "));
  std::error_code error;
  const auto is_empty = [&error](const std::string& folder) {
    return !std::filesystem::is_directory(folder, error) || std::filesystem::is_empty(folder, error);
  };
  std::string missing;
  if (is_empty(sys_infiniband)) {
    missing = absl::StrCat("the kernel shows no RDMA device in ", sys_infiniband,
                           "; load the NIC's driver (ib_uverbs, mlx5_ib), or make a soft-RoCE link");
  } else if (is_empty(dev_infiniband)) {
    missing = absl::StrCat("there are RDMA devices, but no ", dev_infiniband,
                           "; load ib_uverbs and rdma_ucm, or hand the folder into the container");
  } else {
    missing =
        "there are RDMA devices that UCX does not use; check that UCX has its ib module (ucx_info -d), the "
        "rights "
        "on the device files, the lock limit (ulimit -l), and --fabric-devices";
  }
  return absl::FailedPreconditionError(absl::StrCat(has, "; missing: ", missing));
}

void DecideGpuPath(bool cuda_memory, bool has_gpu, FabricFacts& facts) {
  facts.gpu_direct = cuda_memory && facts.rdma;
  if (facts.gpu_direct) {
    facts.gpu_path = "GPUDirect: the NIC writes GPU memory";
  } else if (!has_gpu) {
    facts.gpu_path = "none: no GPU on this machine";
  } else if (!cuda_memory) {
    facts.gpu_path = absl::StrCat("pinned host staging: ", facts.library, " is built without CUDA");
  } else {
    facts.gpu_path =
        absl::StrCat("pinned host staging: ", facts.library, " handles CUDA memory, but no link is RDMA");
  }
}

}  // namespace cistern
