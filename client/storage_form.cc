#include "cistern/storage_form.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "client/chain.h"
#include "client/convert.h"
#include "core/formats/bf16.h"
#include "core/formats/break_even.h"
#include "core/formats/compression.h"
#include "core/random.h"

namespace cistern {

struct StorageForm::Shape {
  BfPartShape part;
  StoredForm form = StoredForm::kE4m3;
  uint32_t parts = 0;  // Of a page.
  uint64_t RawPageBytes() const { return part.RawBytes() * parts; }
};

namespace {

constexpr int kMeasureRounds = 5;  // The best counts: anything else that runs only takes away.
constexpr uint64_t kMeasureSeed = 7;

// Seconds of the quickest of a few rounds.
template <typename Work>
double Quickest(Work work) {
  double best = 1e9;
  for (int round = 0; round < kMeasureRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return std::max(best, 1e-9);
}

FormFigures Measure(const BfPartShape& shape, StoredForm form) {
  FormFigures figures{.form = form, .raw_bytes = shape.RawBytes(), .stored_bytes = StoredBytes(shape, form)};
  std::vector<std::byte> raw(figures.raw_bytes), stored(figures.stored_bytes);
  Random random(kMeasureSeed);
  for (size_t at = 0; at < raw.size(); at += 2) {
    const uint16_t value = FloatToBf16(static_cast<float>(random.Unit() * 8 - 4));
    std::memcpy(&raw[at], &value, sizeof(value));
  }
  const double bytes = static_cast<double>(figures.raw_bytes) / 1e9;
  figures.encode_gbps =
      bytes / Quickest([&] { (void)CompressPart(shape, form, raw, absl::MakeSpan(stored)); });
  figures.decode_gbps =
      bytes / Quickest([&] { (void)DecompressPart(shape, form, stored, absl::MakeSpan(raw)); });
  return figures;
}

// Copies between a page's pieces and one run of bytes. False: their lengths differ.
template <typename Page, typename Copy>
bool Walk(const Page& page, uint64_t bytes, Copy copy) {
  uint64_t at = 0;
  for (const auto& piece : page.pieces) {
    if (piece.bytes > bytes - at) return false;
    copy(piece.data, at, piece.bytes);
    at += piece.bytes;
  }
  return at == bytes;
}

Status WrongPage() { return {Code::kInvalidArgument, "page: not as long as its layout's parts"}; }

}  // namespace

Result<StorageForm> StorageForm::Choose(const Layout& raw, const RawPart& part, const StoragePolicy& policy) {
  if (raw.groups != nullptr) {
    return Status(Code::kInvalidArgument,
                  "layout: of several groups; their row formats are layouts of their own");
  }
  BfPartShape shape{.sequences = part.sequences, .rows = part.rows, .row_tile = part.row_tile, .planes = {}};
  for (const RawPart::Plane& plane : part.planes) shape.planes.push_back({plane.elements, plane.per_channel});
  StorageForm out;
  out.layout_ = raw;
  std::vector<FormFigures> figures;
  std::vector<LayoutSpec> specs;
  for (const std::string& name : policy.forms) {
    const std::optional<StoredForm> form = ParseStoredForm(name);
    if (!form.has_value()) {
      return Status(Code::kInvalidArgument, "forms: \"" + name + "\" is none of e4m3, int8, int4");
    }
    absl::StatusOr<LayoutSpec> spec = StoredLayout(ToSpec(raw), shape, *form);
    if (!spec.ok()) return ToPublic(spec.status());
    figures.push_back(Measure(shape, *form));
    specs.push_back(*std::move(spec));
  }
  const StorageChoice choice = ChooseStoredForm(figures, {.write_gbps = policy.write_gbps,
                                                          .read_gbps = policy.read_gbps,
                                                          .reads_per_write = policy.reads_per_write});
  out.why_ = choice.why;
  for (size_t i = 0; i < figures.size() && choice.form.has_value(); ++i) {
    if (figures[i].form != *choice.form) continue;
    out.form_ = StoredFormName(*choice.form);
    out.layout_.part_bytes = specs[i].part_bytes;
    out.layout_.dtype = specs[i].dtype;
    out.layout_.geometry = specs[i].geometry;
    out.shape_ = std::make_shared<const Shape>(
        Shape{.part = shape, .form = *choice.form, .parts = uint32_t{raw.slices} * raw.spans});
    break;
  }
  return out;
}

uint64_t StorageForm::StoredPageBytes() const {
  return uint64_t{layout_.part_bytes} * layout_.slices * layout_.spans;
}

Status StorageForm::Pack(const ConstPage& page, std::byte* stored) const {
  const auto gather = [&](std::byte* to, uint64_t bytes) {
    return Walk(page, bytes,
                [to](const void* data, uint64_t at, size_t n) { std::memcpy(to + at, data, n); });
  };
  if (shape_ == nullptr) return gather(stored, StoredPageBytes()) ? Status() : WrongPage();
  std::vector<std::byte> raw(shape_->RawPageBytes());
  if (!gather(raw.data(), raw.size())) return WrongPage();
  const uint64_t from = shape_->part.RawBytes(), to = layout_.part_bytes;
  for (uint32_t i = 0; i < shape_->parts; ++i) {
    const absl::Status packed = CompressPart(shape_->part, shape_->form, {raw.data() + i * from, from},
                                             absl::MakeSpan(stored + i * to, to));
    if (!packed.ok()) return ToPublic(packed);
  }
  return {};
}

Status StorageForm::Unpack(const std::byte* stored, const Page& page) const {
  const auto scatter = [&](const std::byte* from, uint64_t bytes) {
    return Walk(page, bytes, [from](void* data, uint64_t at, size_t n) { std::memcpy(data, from + at, n); });
  };
  if (shape_ == nullptr) return scatter(stored, StoredPageBytes()) ? Status() : WrongPage();
  std::vector<std::byte> raw(shape_->RawPageBytes());
  const uint64_t from = layout_.part_bytes, to = shape_->part.RawBytes();
  for (uint32_t i = 0; i < shape_->parts; ++i) {
    const absl::Status unpacked = DecompressPart(shape_->part, shape_->form, {stored + i * from, from},
                                                 absl::MakeSpan(raw.data() + i * to, to));
    if (!unpacked.ok()) return ToPublic(unpacked);
  }
  return scatter(raw.data(), raw.size()) ? Status() : WrongPage();
}

StoreReport StorageForm::StoreWait(Client& client, const Chain& chain, uint32_t first,
                                   std::span<const ConstPage> pages, const CallOptions& options) const {
  if (shape_ == nullptr) return client.StoreWait(chain, first, pages, options);
  const uint64_t bytes = StoredPageBytes();
  std::vector<std::byte> memory(bytes * pages.size());
  std::vector<ConstPage> stored;
  // A chain needs its blocks in a row: what has no such form ends it.
  while (stored.size() < pages.size()) {
    std::byte* to = memory.data() + bytes * stored.size();
    if (!Pack(pages[stored.size()], to).ok()) break;
    stored.emplace_back(to, bytes);
  }
  StoreReport report = client.StoreWait(chain, first, stored, options);
  if (report.status.ok()) report.pages.resize(pages.size(), PageResult::kInvalid);
  return report;
}

LoadReport StorageForm::LoadWait(Client& client, const Hit& hit, uint32_t first, std::span<const Page> pages,
                                 const CallOptions& options) const {
  if (shape_ == nullptr) return client.LoadWait(hit, first, pages, options);
  const uint64_t bytes = StoredPageBytes();
  std::vector<std::byte> memory(bytes * pages.size());
  std::vector<Page> stored;
  for (size_t i = 0; i < pages.size(); ++i) stored.emplace_back(memory.data() + i * bytes, bytes);
  LoadReport report = client.LoadWait(hit, first, stored, options);
  for (size_t i = 0; i < report.pages.size() && i < pages.size(); ++i) {
    if (report.pages[i] != PageResult::kOk) continue;
    if (!Unpack(memory.data() + i * bytes, pages[i]).ok()) report.pages[i] = PageResult::kInvalid;
  }
  return report;
}

}  // namespace cistern
