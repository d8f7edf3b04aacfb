#include "client/python/src/values.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>

#include "cistern/chain_wire.h"
#include "client/python/src/errors.h"

namespace cistern::py {
namespace {

using nb::literals::operator""_a;

nb::bytes ToBytes(const void* data, size_t bytes) { return nb::bytes(data, bytes); }

void InitLayout(Layout* self, std::string model, uint32_t block_tokens, uint32_t part_bytes, uint16_t slices,
                uint16_t spans, std::string dtype, std::string geometry, nb::bytes compute_digest) {
  new (self) Layout();
  self->model = std::move(model);
  self->block_tokens = block_tokens;
  self->part_bytes = part_bytes;
  self->slices = slices;
  self->spans = spans;
  self->dtype = std::move(dtype);
  self->geometry = std::move(geometry);
  if (compute_digest.size() == 0) return;
  if (compute_digest.size() != self->compute_digest.size())
    RaiseInvalid("compute_digest: has " + std::to_string(compute_digest.size()) + " bytes, 32 are wanted");
  std::copy_n(static_cast<const uint8_t*>(compute_digest.data()), self->compute_digest.size(),
              self->compute_digest.begin());
}

bool IsStored(PageResult result) { return result == PageResult::kOk || result == PageResult::kExists; }

nb::list Failed(const Report& report) {
  nb::list out;
  for (size_t i = 0; i < report.pages.size(); ++i) {
    if (!IsStored(report.pages[i])) out.append(i);
  }
  return out;
}

size_t OkPages(const Report& report) {
  return static_cast<size_t>(std::count_if(report.pages.begin(), report.pages.end(), IsStored));
}

std::string Summary(const Report& report) {
  std::string text = "<cistern.Report " + std::to_string(OkPages(report)) + " of " +
                     std::to_string(report.pages.size()) + " pages ok";
  for (const PageResult result : report.pages) {
    if (IsStored(result)) continue;
    text += std::string(", first failure ") + PageResultName(result);
    break;
  }
  return text + ">";
}

void BindLayout(nb::module_& module) {
  nb::class_<Layout>(module, "Layout",
                     "What bytes a block has. All fields but `model` are part of every key: two models need "
                     "another compute_digest (of config, weights and quantisation) or geometry, or they find "
                     "each other's blocks.")
      .def("__init__", &InitLayout, nb::kw_only(), "model"_a, "block_tokens"_a, "part_bytes"_a,
           "slices"_a = 1, "spans"_a = 1, "dtype"_a = "opaque", "geometry"_a = "",
           "compute_digest"_a = nb::bytes("", 0))
      .def_ro("model", &Layout::model)
      .def_ro("block_tokens", &Layout::block_tokens)
      .def_ro("part_bytes", &Layout::part_bytes)
      .def_ro("slices", &Layout::slices)
      .def_ro("spans", &Layout::spans)
      .def_ro("dtype", &Layout::dtype)
      .def_ro("geometry", &Layout::geometry)
      .def_prop_ro("compute_digest",
                   [](const Layout& l) { return ToBytes(l.compute_digest.data(), l.compute_digest.size()); })
      .def_prop_ro("block_bytes",
                   [](const Layout& l) { return uint64_t{l.part_bytes} * l.slices * l.spans; });
}

}  // namespace

Report TakeReport(LoadReport&& report) {
  if (!report.status.ok()) Raise(report.status);
  return {report.hit_blocks, report.bytes, std::move(report.pages)};
}
Report TakeReport(StoreReport&& report) {
  if (!report.status.ok()) Raise(report.status);
  return {0, report.bytes, std::move(report.pages)};
}

std::vector<ChainExtra> TakeExtras(nb::handle extras) {
  std::vector<ChainExtra> out;
  if (extras.is_none()) return out;
  for (nb::handle item : extras) {
    ChainExtra extra;
    uint8_t kind = 0;
    nb::bytes value;
    if (!nb::isinstance<nb::tuple>(item) || nb::len(item) != 4 || !nb::try_cast(item[0], kind) ||
        !nb::try_cast(item[1], extra.block) || !nb::try_cast(item[2], extra.offset) ||
        !nb::try_cast(item[3], value))
      RaiseInvalid("extras[" + std::to_string(out.size()) + "]: a cistern.Extra is wanted");
    extra.kind = static_cast<ChainExtra::Kind>(kind);
    extra.value.assign(value.c_str(), value.size());
    out.push_back(std::move(extra));
  }
  return out;
}

void BindValues(nb::module_& module) {
  BindLayout(module);
  nb::class_<Chain>(module, "Chain")
      .def("__len__", &Chain::blocks)
      .def_prop_ro("blocks", &Chain::blocks)
      .def_prop_ro("layout", [](const Chain& chain) { return chain.layout(); })
      .def(
          "hash",
          [](const Chain& chain, uint32_t block) {
            if (block >= chain.blocks()) throw nb::index_error("block is not in the chain");
            const auto hash = chain.hash(block);
            return ToBytes(hash.data(), hash.size());
          },
          "block"_a)
      .def(
          "fingerprint",
          [](const Chain& chain, uint32_t block) {
            if (block >= chain.blocks()) throw nb::index_error("block is not in the chain");
            return chain.fingerprint(block);
          },
          "block"_a)
      // For an engine's own workers: keys, not tokens.
      .def("__getstate__",
           [](const Chain& chain) {
             const std::string bytes = SerializeChain(chain);
             if (bytes.empty() && chain.blocks() > 0)
               RaiseInvalid("chain: one of several groups does not travel yet");
             return ToBytes(bytes.data(), bytes.size());
           })
      .def("__setstate__", [](Chain& self, nb::bytes state) {
        new (&self)
            Chain(state.size() == 0 ? Chain() : ValueOrRaise(ParseChain({state.c_str(), state.size()})));
      });
  nb::class_<Hit>(module, "Hit")
      .def("__len__", &Hit::blocks)
      .def_prop_ro("blocks", &Hit::blocks)
      .def_prop_ro("stopped_by_code", [](const Hit& hit) { return static_cast<int>(hit.stopped_by()); })
      .def("owner", &Hit::owner, "block"_a);
  nb::class_<Report>(module, "Report")
      .def_ro("hit_blocks", &Report::hit_blocks)
      .def_ro("bytes", &Report::bytes)
      .def_prop_ro("codes", [](const Report& r) { return ToBytes(r.pages.data(), r.pages.size()); })
      .def_prop_ro("ok_pages", &OkPages)
      .def_prop_ro("failed", &Failed)
      .def("__bool__", [](const Report& r) { return OkPages(r) == r.pages.size(); })
      .def("__len__", [](const Report& r) { return r.pages.size(); })
      .def("__repr__", &Summary);
  module.def(
      "page_result_name",
      [](nb::handle code) {
        return std::string(PageResultName(static_cast<PageResult>(TakeUint(code, UINT8_MAX, "code"))));
      },
      "code"_a);
}

}  // namespace cistern::py
