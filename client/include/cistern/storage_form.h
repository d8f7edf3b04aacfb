#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cistern/client.h"
#include "cistern/status.h"

// Storage compression of bf16 pages (docs/formats.md): fewer bits under another layout, so under other keys.
// It loses precision, and nobody gets it who did not name the forms that he allows.
namespace cistern {

// What a part of a one-group layout of bf16 holds: for each of `sequences` (layers x heads) `rows` tokens, in
// tiles of `row_tile`, the planes of a tile one behind the other.
struct RawPart {
  struct Plane {
    uint32_t elements = 0;     // Of one head and token.
    bool per_channel = false;  // K: INT4 scales follow channels; V: they follow tokens.
  };
  uint32_t sequences = 0;
  uint32_t rows = 0;
  uint32_t row_tile = 1;
  std::vector<Plane> planes;
};

// What one namespace allows, and what its parts travel over.
struct StoragePolicy {
  std::vector<std::string> forms;  // "e4m3", "int8", "int4". Empty: as they are.
  double write_gbps = 0;  // 10^9 bytes a second of its path, as `cistern bench write` and `read` say.
  double read_gbps = 0;
  double reads_per_write = 1;
};

// How one namespace's pages of one layout are stored: chosen once, by how fast this machine encodes and
// decodes, measured then. Immutable; any thread.
class StorageForm {
 public:
  // InvalidArgument naming the field: an unknown form, planes that are not those of the layout's parts, a
  // layout that is not bf16 or has several groups.
  static Result<StorageForm> Choose(const Layout& raw, const RawPart& part, const StoragePolicy& policy);

  const std::string& form() const { return form_; }  // Empty: pages are stored as they are.
  // One line with the figures that decided, for the log: somebody should see it.
  const std::string& why() const { return why_; }
  // What chains of such pages are made of; the raw layout when they are stored as they are.
  const Layout& layout() const { return layout_; }

  // The client's calls, with pages of bf16. A page with an infinite or NaN value is kInvalid: it has no such
  // form. Memory of the stored pages is allocated for the call.
  StoreReport StoreWait(Client& client, const Chain& chain, uint32_t first, std::span<const ConstPage> pages,
                        const CallOptions& options = {}) const;
  LoadReport LoadWait(Client& client, const Hit& hit, uint32_t first, std::span<const Page> pages,
                      const CallOptions& options = {}) const;

  // The same without a cluster. stored: StoredPageBytes() long; the page as long as a raw one.
  uint64_t StoredPageBytes() const;
  Status Pack(const ConstPage& page, std::byte* stored) const;
  Status Unpack(const std::byte* stored, const Page& page) const;

 private:
  struct Shape;
  std::string form_, why_;
  Layout layout_;
  std::shared_ptr<const Shape> shape_;  // Owners: this and its copies.
};

}  // namespace cistern
