#include "router/state_codec.h"

#include "absl/strings/str_cat.h"
#include "proto/bounded_parse.h"
#include "proto/convert.h"
#include "proto/router_state.pb.h"

namespace cistern {
namespace {

constexpr char kMapKey[] = "map";
constexpr std::string_view kNodePrefix = "node/";
constexpr uint32_t kSchema = 1;
constexpr int kStoredNoncesMax = 64;  // More than any release keeps.

absl::Status Damaged(std::string_view key, std::string_view why) {
  return absl::DataLossError(absl::StrCat("router state, key ", std::string(key), ": ", std::string(why)));
}

std::string NodeKey(std::string_view id) { return std::string(kNodePrefix) + std::string(id); }

}  // namespace

StateChange EncodeMap(const ClusterMap& map, uint64_t last_incarnation) {
  proto::StoredMap stored;
  stored.set_schema(kSchema);
  *stored.mutable_map() = ToWire(map);
  stored.set_last_incarnation(last_incarnation);
  return {kMapKey, stored.SerializeAsString()};
}

StateChange EncodeNode(std::string_view id, const NodeIdentity& identity) {
  proto::StoredNode stored;
  stored.set_boot_nonce(identity.boot_nonce);
  for (const uint64_t nonce : identity.old_nonces) stored.add_old_nonces(nonce);
  stored.set_place(identity.place);
  stored.set_draining(identity.draining);
  return {NodeKey(id), stored.SerializeAsString()};
}

StateChange ForgetNode(std::string_view id) { return {NodeKey(id), std::nullopt}; }

absl::StatusOr<RouterState> DecodeState(const std::map<std::string, std::string>& values) {
  RouterState state;
  const auto map = values.find(kMapKey);
  if (map == values.end()) return Damaged(kMapKey, "missing");
  proto::StoredMap stored;
  if (!ParseBounded(stored, map->second)) return Damaged(kMapKey, "does not parse");
  if (stored.schema() != kSchema) {
    return Damaged(kMapKey, absl::StrCat("schema ", stored.schema(), ", this release reads ", kSchema));
  }
  absl::StatusOr<ClusterMap> decoded = FromWire(stored.map());
  if (!decoded.ok()) return Damaged(kMapKey, std::string(decoded.status().message()));
  state.map = *std::move(decoded);
  state.last_incarnation = stored.last_incarnation();
  for (const NodeEntry& node : state.map.nodes) {
    const std::string key = NodeKey(node.id);
    const auto found = values.find(key);
    if (found == values.end()) return Damaged(key, "missing");
    proto::StoredNode identity;
    if (!ParseBounded(identity, found->second)) return Damaged(key, "does not parse");
    if (identity.old_nonces_size() > kStoredNoncesMax) return Damaged(key, "too many nonces");
    state.nodes[node.id] = {identity.boot_nonce(),
                            {identity.old_nonces().begin(), identity.old_nonces().end()},
                            identity.place(),
                            identity.draining()};
    if (node.incarnation > state.last_incarnation) return Damaged(key, "incarnation above the counter");
  }
  if (values.size() != state.nodes.size() + 1)
    return Damaged(kNodePrefix, "a node that the map does not have");
  return state;
}

}  // namespace cistern
