#include "cistern/chain_wire.h"

#include <algorithm>
#include <cstring>

#include "client/chain.h"
#include "client/convert.h"
#include "core/bytes.h"

namespace cistern {
namespace {

constexpr char kMagic[8] = {'C', 'S', 'T', 'N', 'C', 'H', '0', '1'};
constexpr size_t kFieldBytesMax = 8192;  // Above every limit of ValidateLayout.
constexpr size_t kKeyBytes = 32 + 8;

void Put(std::string& out, uint32_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void Put(std::string& out, std::string_view text) {
  Put(out, static_cast<uint32_t>(text.size()));
  out.append(text);
}

// Takes fields off the front; after the first one that is not whole, everything is empty and ok() false.
class Taker {
 public:
  explicit Taker(std::string_view rest) : rest_(rest) {}
  bool ok() const { return ok_; }
  std::string_view rest() const { return rest_; }
  std::string_view Bytes(size_t count) {
    if (!ok_ || count > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }
  uint32_t Number() {
    const std::string_view raw = Bytes(sizeof(uint32_t));
    return ok_ ? LoadLe<uint32_t>(raw.data()) : 0;
  }
  std::string Text() {
    const uint32_t count = Number();
    if (count > kFieldBytesMax) ok_ = false;
    return std::string(Bytes(count));
  }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace

std::string SerializeChain(const Chain& chain) {
  std::string out;
  if (chain.blocks() == 0 || chain.grouped()) return out;
  const Layout& layout = chain.layout();
  out.append(kMagic, sizeof(kMagic));
  Put(out, layout.model);
  Put(out, layout.block_tokens);
  Put(out, layout.part_bytes);
  Put(out, uint32_t{layout.slices});
  Put(out, uint32_t{layout.spans});
  Put(out, layout.dtype);
  Put(out, layout.geometry);
  out.append(reinterpret_cast<const char*>(layout.compute_digest.data()), layout.compute_digest.size());
  Put(out, chain.blocks());
  for (const BlockKey& key : chain.rep()->keys) {
    out.append(reinterpret_cast<const char*>(key.hash.bytes.data()), key.hash.bytes.size());
    out.append(reinterpret_cast<const char*>(&key.fingerprint), sizeof(key.fingerprint));
  }
  return out;
}

Result<Chain> ParseChain(std::string_view bytes) {
  const Status broken(Code::kInvalidArgument, "chain: not what SerializeChain gave, or of another version");
  Taker taker(bytes);
  if (taker.Bytes(sizeof(kMagic)) != std::string_view(kMagic, sizeof(kMagic))) return broken;
  auto rep = std::make_shared<Chain::Rep>();
  Layout& layout = rep->layout;
  layout.model = taker.Text();
  layout.block_tokens = taker.Number();
  layout.part_bytes = taker.Number();
  const uint32_t slices = taker.Number(), spans = taker.Number();
  layout.dtype = taker.Text();
  layout.geometry = taker.Text();
  const std::string_view digest = taker.Bytes(layout.compute_digest.size());
  const uint32_t blocks = taker.Number();
  if (!taker.ok() || slices > UINT16_MAX || spans > UINT16_MAX || blocks == 0) return broken;
  if (taker.rest().size() != size_t{blocks} * kKeyBytes) return broken;
  layout.slices = static_cast<uint16_t>(slices);
  layout.spans = static_cast<uint16_t>(spans);
  std::copy_n(digest.begin(), digest.size(), layout.compute_digest.begin());
  rep->spec = ToSpec(layout);
  if (const absl::Status status = ValidateLayout(rep->spec); !status.ok()) return ToPublic(status);
  rep->layout_id = ComputeLayoutId(rep->spec);
  // Only the first block is hashed from the root, and that one is here.
  rep->root = {rep->layout_id, {}, layout.compute_digest, 0};
  rep->keys.resize(blocks);
  for (BlockKey& key : rep->keys) {
    const std::string_view raw = taker.Bytes(kKeyBytes);
    std::memcpy(key.hash.bytes.data(), raw.data(), key.hash.bytes.size());
    key.fingerprint = LoadLe<uint64_t>(raw.data() + key.hash.bytes.size());
  }
  return Chain(std::shared_ptr<const Chain::Rep>(std::move(rep)));
}

}  // namespace cistern
