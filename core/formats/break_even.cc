#include "core/formats/break_even.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cistern {
namespace {

bool IsMeasured(const FormFigures& f) {
  return f.encode_gbps > 0 && f.decode_gbps > 0 && f.raw_bytes > 0 && f.stored_bytes > 0;
}
double Share(const FormFigures& f) {
  return static_cast<double>(f.stored_bytes) / static_cast<double>(f.raw_bytes);
}

}  // namespace

BreakEven BreakEvenOf(const FormFigures& figures) {
  if (!IsMeasured(figures) || figures.stored_bytes >= figures.raw_bytes) return {};
  const double saved = 1 - Share(figures);
  return {.store_gbps = figures.encode_gbps * saved, .load_gbps = figures.decode_gbps * saved};
}

StorageChoice ChooseStoredForm(absl::Span<const FormFigures> allowed, const StoragePath& path) {
  StorageChoice out;
  if (!(path.write_gbps > 0 && path.read_gbps > 0 && path.reads_per_write >= 0)) {
    out.why = "stored as bf16: the path's bandwidths have not been measured";
    return out;
  }
  const double moved = 1 / path.write_gbps + path.reads_per_write / path.read_gbps;
  out.seconds_per_gb = out.seconds_per_gb_raw = moved;
  const FormFigures* best = nullptr;
  for (const FormFigures& f : allowed) {
    if (!IsMeasured(f)) continue;
    const double seconds = 1 / f.encode_gbps + path.reads_per_write / f.decode_gbps + moved * Share(f);
    if (seconds >= out.seconds_per_gb) continue;
    out.seconds_per_gb = seconds;
    best = &f;
  }
  const std::string over = absl::StrFormat("%.3g GB/s out and %.3g GB/s in, %.3g reads a write",
                                           path.write_gbps, path.read_gbps, path.reads_per_write);
  if (best == nullptr) {
    out.why = absl::StrCat("stored as bf16: over ", over,
                           allowed.empty() ? ", no form is allowed" : ", no allowed form is quicker");
    return out;
  }
  out.form = best->form;
  out.why = absl::StrFormat("stored as %s: over %s, %.3g s a GB instead of %.3g", StoredFormName(best->form),
                            over, out.seconds_per_gb, out.seconds_per_gb_raw);
  return out;
}

}  // namespace cistern
