#include <hwloc.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/topology.h"

namespace cistern {
namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Handle = std::unique_ptr<hwloc_topology, Destroy>;

absl::StatusOr<Handle> Load(const std::string& xml) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return absl::InternalError("hwloc_topology_init");
  Handle handle(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (!xml.empty() && hwloc_topology_set_xmlbuffer(raw, xml.c_str(), static_cast<int>(xml.size() + 1)) != 0)
    return absl::InvalidArgumentError("not a topology that hwloc recorded");
  if (hwloc_topology_load(raw) != 0) return absl::InvalidArgumentError("hwloc cannot read the topology");
  return handle;
}

// The PCI function that a device belongs to; null for what is on no bus.
hwloc_obj_t PciOf(hwloc_obj_t object) {
  while (object != nullptr && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
  return object;
}

std::string BusOf(hwloc_obj_t pci) {
  const auto& attr = pci->attr->pcidev;
  return absl::StrFormat("%04x:%02x:%02x.%x", attr.domain, attr.bus, attr.dev, attr.func);
}

int NumaOf(hwloc_topology_t topology, hwloc_obj_t object) {
  hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, object);
  if (place == nullptr || place->nodeset == nullptr) return -1;
  // More than one: attached to the machine as a whole, near nothing.
  return hwloc_bitmap_weight(place->nodeset) == 1 ? hwloc_bitmap_first(place->nodeset) : -1;
}

// The outermost bridge above a device: the host bridge, or below it a root port where a switch hangs.
hwloc_obj_t SwitchOf(hwloc_obj_t pci) {
  hwloc_obj_t found = nullptr;
  for (hwloc_obj_t up = pci->parent; up != nullptr && up->type == HWLOC_OBJ_BRIDGE; up = up->parent) {
    if (up->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) found = up;
  }
  return found;
}

bool IsGpu(hwloc_obj_t pci) {
  const uint16_t vendor = pci->attr->pcidev.vendor_id;
  return pci->attr->pcidev.class_id >> 8 == 0x03 && (vendor == 0x10de || vendor == 0x1002);
}

struct Device {
  std::string name;
  hwloc_obj_t pci = nullptr;
  int numa = -1;
};

NicChoice Choose(std::string of, const std::vector<Device>& nics, hwloc_obj_t pci, int numa) {
  NicChoice choice;
  choice.of = std::move(of);
  const hwloc_obj_t port = pci == nullptr ? nullptr : SwitchOf(pci);
  std::vector<std::pair<Nearness, std::string>> ranked;
  for (const Device& nic : nics) {
    Nearness nearness = Nearness::kSameMachine;
    if (port != nullptr && nic.pci != nullptr && SwitchOf(nic.pci) == port) {
      nearness = Nearness::kSameSwitch;
    } else if (numa >= 0 && nic.numa == numa) {
      nearness = Nearness::kSameNuma;
    }
    ranked.emplace_back(nearness, nic.name);
  }
  std::sort(ranked.begin(), ranked.end());
  choice.nearness = ranked.front().first;
  for (const auto& [nearness, name] : ranked) {
    if (nearness == choice.nearness && choice.nics.size() < kRailsMax) choice.nics.push_back(name);
  }
  return choice;
}

std::string GpuName(hwloc_obj_t pci) {
  for (hwloc_obj_t child = pci->io_first_child; child != nullptr; child = child->next_sibling) {
    if (child->type == HWLOC_OBJ_OS_DEVICE && child->name != nullptr &&
        std::strncmp(child->name, "cuda", 4) == 0)
      return child->name;
  }
  return BusOf(pci);
}

}  // namespace

absl::StatusOr<Topology> ReadTopology(const std::string& xml) {
  absl::StatusOr<Handle> handle = Load(xml);
  if (!handle.ok()) return handle.status();
  hwloc_topology_t topology = handle->get();
  Topology out;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    out.numa_nodes.push_back(static_cast<int>(node->os_index));
  }
  std::vector<Device> nics, gpus;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_osdev(topology, device)) != nullptr;) {
    if (device->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS) continue;
    nics.push_back({device->name, PciOf(device), NumaOf(topology, device)});
  }
  for (hwloc_obj_t pci = nullptr; (pci = hwloc_get_next_pcidev(topology, pci)) != nullptr;) {
    if (IsGpu(pci)) gpus.push_back({GpuName(pci), pci, NumaOf(topology, pci)});
  }
  const auto by_name = [](const Device& a, const Device& b) { return a.name < b.name; };
  std::sort(nics.begin(), nics.end(), by_name);
  std::sort(gpus.begin(), gpus.end(), by_name);
  for (const Device& nic : nics)
    out.nics.push_back({nic.name, nic.pci != nullptr ? BusOf(nic.pci) : "", nic.numa});
  for (const Device& gpu : gpus) out.gpus.push_back({gpu.name, BusOf(gpu.pci), gpu.numa});
  if (nics.empty()) return out;
  for (const Device& gpu : gpus) {
    out.choices.push_back(Choose(absl::StrCat("gpu ", gpu.name), nics, gpu.pci, gpu.numa));
  }
  for (const int numa : out.numa_nodes) {
    out.choices.push_back(Choose(absl::StrCat("numa ", numa), nics, nullptr, numa));
  }
  return out;
}

}  // namespace cistern
