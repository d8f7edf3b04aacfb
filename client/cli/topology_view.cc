#include "client/cli/topology_view.h"

#include <vector>

#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "nlohmann/json.hpp"
#include "transport/fabric.h"
#include "transport/topology.h"

namespace cistern {
namespace {

Json FabricJson(const FabricFlags& flags) {
  FabricOptions options;
  options.transports = flags.transports;
  options.devices = flags.devices;
  const auto domain = OpenFabric(options);
  if (!domain.ok()) return Json{{"error", Words(domain.status())}};
  const FabricFacts& facts = (*domain)->facts();
  return Json{{"library", facts.library},           {"links", facts.links},
              {"memory_types", facts.memory_types}, {"rdma", facts.rdma},
              {"gpu_direct", facts.gpu_direct},     {"gpu_path", facts.gpu_path}};
}

}  // namespace

Json TopologyJson(const FabricFlags& flags) {
  Json out;
  const absl::StatusOr<Topology> topology = ReadTopology();
  if (!topology.ok()) {
    out["error"] = Words(topology.status());
  } else {
    out["numa_nodes"] = topology->numa_nodes;
    out["nics"] = Json::array();
    for (const TopologyNic& nic : topology->nics)
      out["nics"].push_back(Json{{"name", nic.name}, {"bus", nic.bus}, {"numa", nic.numa}});
    out["gpus"] = Json::array();
    for (const TopologyGpu& gpu : topology->gpus)
      out["gpus"].push_back(Json{{"name", gpu.name}, {"bus", gpu.bus}, {"numa", gpu.numa}});
    out["rails"] = Json::array();
    for (const NicChoice& choice : topology->choices) {
      out["rails"].push_back(Json{
          {"of", choice.of}, {"nics", choice.nics}, {"near", std::string(NearnessName(choice.nearness))}});
    }
  }
  out["fabric"] = FabricJson(flags);
  return out;
}

std::string TopologyText(const Json& topology) {
  std::string out;
  const auto join = [](const Json& list) {
    std::string text;
    for (const Json& item : list) text += (text.empty() ? "" : ", ") + item.get<std::string>();
    return text.empty() ? std::string("none") : text;
  };
  if (topology.contains("error")) {
    out += "topology: " + topology["error"].get<std::string>() + "\n";
  } else {
    std::vector<std::vector<std::string>> rows = {{"device", "bus", "numa"}};
    for (const char* kind : {"nics", "gpus"}) {
      for (const Json& device : topology[kind])
        rows.push_back(
            {device["name"].get<std::string>(), device["bus"].get<std::string>(), device["numa"].dump()});
    }
    out += rows.size() == 1 ? "no RDMA NIC and no GPU on this machine\n" : FormatTable(rows);
    rows = {{"bytes of", "take", "near"}};
    for (const Json& rail : topology["rails"])
      rows.push_back({rail["of"].get<std::string>(), join(rail["nics"]), rail["near"].get<std::string>()});
    if (rows.size() > 1) out += FormatTable(rows);
  }
  const Json& fabric = topology["fabric"];
  if (fabric.contains("error")) return out + "fabric: " + fabric["error"].get<std::string>() + "\n";
  return out + "fabric: " + fabric["library"].get<std::string>() + " over " + join(fabric["links"]) +
         "; memory types " + join(fabric["memory_types"]) +
         "; GPU path: " + fabric["gpu_path"].get<std::string>() + "\n";
}

}  // namespace cistern
