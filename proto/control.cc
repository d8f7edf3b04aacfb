#include "proto/control.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/bytes.h"
#include "core/random.h"

namespace cistern {
namespace {

// Fields with their lengths, so that no two requests give the same bytes.
class Framer {
 public:
  Framer& Add(std::string_view field) {
    Add(static_cast<uint64_t>(field.size()));
    bytes_.append(field);
    return *this;
  }
  Framer& Add(uint64_t value) {
    char raw[8];
    StoreLe(raw, value);
    bytes_.append(raw, sizeof(raw));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string Sign(const ClusterKey& key, std::string_view label, const Framer& framer) {
  const auto mac = key.Derive(label, framer.bytes());
  return std::string(reinterpret_cast<const char*>(mac.data()), mac.size());
}

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

constexpr size_t kUnixNameBytesMax = 107;  // sun_path without the leading NUL of an abstract name.

}  // namespace

std::string RegisterProof(const ClusterKey& key, const RegisterRequest& request) {
  Framer framer;
  framer.Add(request.node_id);
  framer.Add(request.cluster.has_value() ? ToHex(*request.cluster) : std::string());
  framer.Add(request.boot_nonce);
  framer.Add(std::bit_cast<uint64_t>(request.weight));
  framer.Add(request.ram_bytes);
  framer.Add(request.held_incarnation);
  framer.Add(static_cast<uint64_t>(request.shards.size()));
  for (const ShardAddress& shard : request.shards) {
    framer.Add(shard.tcp).Add(shard.unix_name).Add(shard.fabric);
  }
  return Sign(key, "register", framer);
}

std::string HeartbeatProof(const ClusterKey& key, std::string_view node_id, uint64_t incarnation) {
  return Sign(key, "heartbeat", Framer().Add(node_id).Add(incarnation));
}

bool SameProof(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differ = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    differ = static_cast<unsigned char>(
        differ | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  }
  return differ == 0;
}

bool IsNodeId(std::string_view id) {
  if (id.empty() || id.size() > kNodeIdBytesMax || id.front() == '.' || id.front() == '-') return false;
  return std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

absl::Status ValidateShardAddress(const ShardAddress& address) {
  if (address.tcp.empty() && address.unix_name.empty() && address.fabric.empty()) {
    return absl::InvalidArgumentError("shard address: no path offered (tcp, unix_name, fabric all empty)");
  }
  if (!address.tcp.empty()) {
    if (const absl::Status tcp = ParseHostPort(address.tcp).status(); !tcp.ok())
      return absl::InvalidArgumentError(absl::StrCat("shard address: tcp ", tcp.message()));
  }
  if (address.unix_name.size() > kUnixNameBytesMax || !IsPrintable(address.unix_name)) {
    return absl::InvalidArgumentError("shard address: unix_name is too long or not printable");
  }
  if (address.fabric.size() > kAddressBytesMax || !IsPrintable(address.fabric)) {
    return absl::InvalidArgumentError("shard address: fabric is too long or not printable");
  }
  return absl::OkStatus();
}

absl::Status ValidateRegister(const RegisterRequest& request) {
  if (!IsNodeId(request.node_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("node_id: 1 to ", kNodeIdBytesMax,
                     " of letters, digits, '.', '_', '-', not beginning with '.' or '-'"));
  }
  if (request.boot_nonce == 0) return absl::InvalidArgumentError("boot_nonce is 0");
  if (!std::isfinite(request.weight) || request.weight < 0 || request.weight > kWeightMax) {
    return absl::InvalidArgumentError("weight is not in [0, kWeightMax]");
  }
  if (request.held_incarnation > kIncarnationMax)
    return absl::InvalidArgumentError("held_incarnation out of range");
  if (request.place.size() > kPlaceBytesMax || !IsPrintable(request.place))
    return absl::InvalidArgumentError("place is too long or not printable");
  if (request.shards.empty() || request.shards.size() > kShardsPerNodeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("shards: ", request.shards.size(), ", not 1 to ", kShardsPerNodeMax));
  }
  for (const ShardAddress& shard : request.shards) {
    if (absl::Status status = ValidateShardAddress(shard); !status.ok()) return status;
  }
  return absl::OkStatus();
}

Nanos Backoff::Next() {
  Nanos wait = min_;
  for (int i = 0; i < attempt_ && wait < max_; ++i) wait *= 2;
  if (wait < max_) ++attempt_;
  wait = std::min(wait, max_);
  Random random(state_);
  state_ = random.Next();
  return wait / 2 + static_cast<Nanos>(random.Below(static_cast<uint64_t>(wait / 2) + 1));
}

}  // namespace cistern
