#include "client/internal/admin.h"

#include <poll.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "client/client_impl.h"
#include "client/convert.h"
#include "core/placement.h"
#include "proto/bounded_parse.h"
#include "proto/convert.h"

namespace cistern::internal {
namespace {

constexpr int kConnectStepMs = 20;  // At most so long until a deadline is looked at.

// Asks one shard; the outcome goes to the callback.
using ShardCall = std::function<void(ClientCore&, uint32_t shard, AdminDone)>;

// One admin call to every shard of a node at once; `bodies` in shard order.
absl::Status AskShards(Client& client, const std::string& node, const ShardCall& call,
                       std::vector<Bytes>& bodies) {
  Client::Impl& impl = *client.impl();
  uint32_t shards = 0;
  uint32_t left = 0;
  bool done = false;
  absl::Status failed;
  impl.Locked(
      [&] {
        for (const NodeEntry& entry : impl.core_->map().nodes) {
          if (entry.id == node) shards = static_cast<uint32_t>(entry.shards.size());
        }
        bodies.resize(shards);
        left = shards;
        done = shards == 0;
        for (uint32_t shard = 0; shard < shards; ++shard) {
          const auto take = [&, shard](const AdminOutcome& outcome) {
            if (outcome.result != PartResult::kOk) failed = outcome.status;
            bodies[shard].assign(outcome.body.begin(), outcome.body.end());
            if (--left == 0) done = impl.finished_ = true;
          };
          call(*impl.core_, shard, take);
        }
        return true;
      },
      /*will_wait=*/true);
  impl.WaitFor(&done);
  if (shards == 0) return absl::NotFoundError("no node \"" + node + "\" in the cluster map");
  if (!failed.ok()) return absl::Status(failed.code(), node + ": " + std::string(failed.message()));
  return absl::OkStatus();
}

uint64_t ShardsOf(Client& client, const std::string& node) {
  for (const NodeEntry& entry : Map(client).nodes) {
    if (entry.id == node) return entry.shards.size();
  }
  return 0;
}

}  // namespace

absl::StatusOr<NodeStats> FetchNodeStats(Client& client, const std::string& node,
                                         std::chrono::milliseconds deadline) {
  std::vector<Bytes> bodies;
  const auto ask = [&](ClientCore& core, uint32_t shard, AdminDone done) {
    core.FetchNodeStats(node, shard, ToNanos(deadline), std::move(done));
  };
  if (absl::Status status = AskShards(client, node, ask, bodies); !status.ok()) return status;
  NodeStats sum;
  for (const Bytes& body : bodies) {
    proto::NodeStats wire;
    if (!ParseBounded(wire, {reinterpret_cast<const char*>(body.data()), body.size()})) {
      return absl::DataLossError(node + ": its statistics do not parse");
    }
    absl::StatusOr<NodeStats> stats = FromWire(wire);
    if (!stats.ok()) return stats.status();
    MergeStats(*stats, sum);
  }
  return sum;
}

absl::StatusOr<DropTotals> DropAll(Client& client, const std::string& node,
                                   std::chrono::milliseconds deadline) {
  std::vector<Bytes> bodies;
  const auto ask = [&](ClientCore& core, uint32_t shard, AdminDone done) {
    DropRequest request;
    request.all = true;
    core.Drop(node, shard, request, ToNanos(deadline), std::move(done));
  };
  if (absl::Status status = AskShards(client, node, ask, bodies); !status.ok()) return status;
  DropTotals totals;
  for (const Bytes& body : bodies) {
    DropReply reply;
    if (absl::Status status = reply.Decode(body); !status.ok()) return status;
    totals.dropped_parts += reply.dropped_parts;
    totals.kept_parts += reply.kept_parts;
  }
  return totals;
}

absl::StatusOr<QuotaReply> AskQuota(Client& client, const std::string& node, QuotaRequest request,
                                    std::chrono::milliseconds deadline) {
  std::vector<Bytes> bodies;
  const uint64_t shards = ShardsOf(client, node);
  if (shards > 1) {  // Each shard has its share of the RAM.
    if (request.limits.quota_bytes != 0)
      request.limits.quota_bytes = std::max<uint64_t>(request.limits.quota_bytes / shards, 1);
    request.limits.floor_bytes /= shards;
  }
  const auto ask = [&](ClientCore& core, uint32_t shard, AdminDone done) {
    core.Quota(node, shard, request, ToNanos(deadline), std::move(done));
  };
  if (absl::Status status = AskShards(client, node, ask, bodies); !status.ok()) return status;
  QuotaReply sum;
  for (const Bytes& body : bodies) {
    QuotaReply reply;
    if (absl::Status status = reply.Decode(body); !status.ok()) return status;
    for (const QuotaReply::Row& row : reply.rows) {
      const auto same = std::find_if(sum.rows.begin(), sum.rows.end(),
                                     [&](const QuotaReply::Row& have) { return have.tenant == row.tenant; });
      if (same == sum.rows.end()) {
        sum.rows.push_back(row);
        continue;
      }
      same->limits.quota_bytes += row.limits.quota_bytes;
      same->limits.floor_bytes += row.limits.floor_bytes;
      same->used_bytes += row.used_bytes;
      same->pinned_bytes += row.pinned_bytes;
      same->evicted_parts += row.evicted_parts;
      same->evicted_bytes += row.evicted_bytes;
      same->rejected_parts += row.rejected_parts;
      same->rejected_bytes += row.rejected_bytes;
    }
  }
  return sum;
}

std::vector<PeerRow> Peers(Client& client) {
  Client::Impl& impl = *client.impl();
  return impl.Locked([&] { return impl.core_->PeerRows(); });
}

std::vector<PeerRow> ConnectPeers(Client& client, std::chrono::milliseconds deadline) {
  Client::Impl& impl = *client.impl();
  const Nanos end = impl.clock_.Now() + ToNanos(deadline);
  impl.Locked([&] {
    impl.core_->ConnectAll();
    return true;
  });
  for (;;) {
    std::vector<PeerRow> rows = Peers(client);
    const bool waiting =
        std::any_of(rows.begin(), rows.end(), [](const PeerRow& r) { return r.state == "connecting"; });
    if (!waiting || impl.clock_.Now() >= end) return rows;
    // No call drives the client here: one that ends before the connection is there would count against it.
    pollfd readable{.fd = client.event_fd(), .events = POLLIN, .revents = 0};
    ::poll(&readable, 1, kConnectStepMs);
    client.Poll();
  }
}

ClusterMap Map(Client& client) {
  Client::Impl& impl = *client.impl();
  return impl.Locked([&] { return impl.core_->map(); });
}

std::vector<ConstSegment> MappedArenas(Client& client) {
  Client::Impl& impl = *client.impl();
  return impl.Locked([&] {
    std::vector<ConstSegment> arenas;
    for (const NodeEntry& node : impl.core_->map().nodes) {
      for (uint32_t shard = 0; shard < node.shards.size(); ++shard) {
        const PeerId peer = impl.core_->PeerOf(node.id, shard);
        if (peer == 0) continue;
        for (const ConstSegment& region : impl.transport_->MappedRegions(peer)) arenas.push_back(region);
      }
    }
    return arenas;
  });
}

absl::StatusOr<ProbeResult> Probe(Client& client, const Chain& chain, std::chrono::milliseconds deadline) {
  Client::Impl& impl = *client.impl();
  ProbeResult result;
  LookupOutcome outcome;
  bool done = false;
  Status status;
  impl.Locked(
      [&] {
        CallSpec spec;
        CallOptions options;
        options.deadline = deadline;
        status = impl.Spec(chain, options, spec);
        if (!status.ok()) {
          done = true;
          return OpId{0};
        }
        spec.probe = true;
        const Placement placement(impl.core_->map());
        const uint32_t cap = std::max(impl.core_->map().run_blocks_cap, 1u);
        for (uint32_t block = 0; block < chain.blocks(); ++block) {
          const BlockHash& run_key = chain.rep()->keys[RunFirst(block, cap)].hash;
          result.owners.push_back(placement.empty() ? ""
                                                    : placement.owners().owners[placement.Owner(run_key)].id);
        }
        if (chain.grouped()) {
          return impl.SubmitGroups(
              chain, options, /*lease=*/false,
              [&](const GroupPlanOutcome& o) {
                outcome = {.status = o.status,
                           .blocks = static_cast<uint32_t>(o.hit.tokens / chain.layout().block_tokens),
                           .stopped_by = o.stopped_by,
                           .why = o.why};
                result.history_tokens = o.hit.history_tokens;
                done = impl.finished_ = true;
              },
              /*probe=*/true);
        }
        return impl.core_->Lookup(spec, [&](const LookupOutcome& o) {
          outcome = o;
          done = impl.finished_ = true;
        });
      },
      /*will_wait=*/true);
  if (!status.ok()) return ToAbsl(status);
  impl.WaitFor(&done);
  if (!outcome.status.ok()) return outcome.status;
  result.why = outcome.why;
  result.hit_tokens = uint64_t{outcome.blocks} * chain.layout().block_tokens;
  result.blocks = outcome.blocks;
  result.stopped_by = outcome.stopped_by;
  return result;
}

}  // namespace cistern::internal
