#include <string>
#include <vector>

#include "cistern/client.h"
#include "client/client_impl.h"
#include "client/convert.h"
#include "core/cluster_map.h"
#include "transport/messages.h"

// Removal of blocks by name, from every shard of the map: a block may lie with an owner of before, too.
namespace cistern {
namespace {

// One request's blocks at all shards; adds to `totals`. The first failure is kept, the others are asked all
// the same.
void RemoveOnce(Client::Impl& impl, const DropRequest& request, Nanos deadline, RemoveReport& totals) {
  uint32_t left = 0;
  bool done = false;
  impl.Locked(
      [&] {
        const ClusterMap& map = impl.core_->map();
        for (const NodeEntry& node : map.nodes) left += static_cast<uint32_t>(node.shards.size());
        done = left == 0;
        for (const NodeEntry& node : map.nodes) {
          for (uint32_t shard = 0; shard < node.shards.size(); ++shard) {
            impl.core_->Drop(
                node.id, shard, request, deadline, [&, id = node.id](const AdminOutcome& outcome) {
                  DropReply reply;
                  absl::Status status = outcome.status;
                  if (status.ok()) status = reply.Decode(outcome.body);
                  if (!status.ok() && totals.status.ok()) {
                    totals.status =
                        ToPublic(absl::Status(status.code(), id + ": " + std::string(status.message())));
                  }
                  totals.removed_parts += reply.dropped_parts + reply.kept_parts;
                  if (--left == 0) done = impl.finished_ = true;
                });
          }
        }
        return true;
      },
      /*will_wait=*/true);
  impl.WaitFor(&done);
}

}  // namespace

RemoveReport Client::RemoveWait(std::span<const Chain> chains, const CallOptions& options) {
  RemoveReport totals;
  const Impl::Entry entry(impl_.get());
  if (!entry) {
    totals.status = ForkedStatus();
    return totals;
  }
  // One deadline for all requests that the blocks take.
  const Nanos deadline = impl_->EndOf(options);
  DropRequest request;
  const auto flush = [&] {
    if (request.blocks.empty()) return;
    const Nanos left = deadline - impl_->clock_.Now();
    if (left > 0) {
      RemoveOnce(*impl_, request, left, totals);
    } else if (totals.status.ok()) {
      totals.status = ToPublic(absl::DeadlineExceededError("not all blocks were asked for by the deadline"));
    }
    request.blocks.clear();
  };
  for (const Chain& chain : chains) {
    for (uint32_t block = 0; block < chain.blocks(); ++block) {
      request.blocks.push_back(chain.rep()->keys[block].hash);
      if (request.blocks.size() == kBlocksPerRequestMax) flush();
    }
  }
  flush();
  return totals;
}

}  // namespace cistern
