#include <memory>
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

// One request's blocks at all shards. Owners: the callbacks, and who waits: that one may leave with an
// exception.
struct Round {
  RemoveReport report;  // The first failure is kept, the others are asked all the same.
  uint32_t left = 0;
  bool done = false;

  void Take(const std::string& node, const AdminOutcome& outcome) {
    DropReply reply;
    absl::Status status = outcome.status;
    if (status.ok()) status = reply.Decode(outcome.body);
    if (!status.ok() && report.status.ok())
      report.status = ToPublic(absl::Status(status.code(), node + ": " + std::string(status.message())));
    report.removed_parts += reply.dropped_parts + reply.kept_parts;
  }
};

void RemoveOnce(Client::Impl& impl, const DropRequest& request, Nanos deadline, RemoveReport& totals) {
  const auto round = std::make_shared<Round>();
  impl.Locked(
      [&] {
        const ClusterMap& map = impl.core_->map();
        for (const NodeEntry& node : map.nodes) round->left += static_cast<uint32_t>(node.shards.size());
        round->done = round->left == 0;
        for (const NodeEntry& node : map.nodes) {
          for (uint32_t shard = 0; shard < node.shards.size(); ++shard) {
            impl.core_->Drop(node.id, shard, request, deadline,
                             [&impl, round, id = node.id](const AdminOutcome& outcome) {
                               round->Take(id, outcome);
                               if (--round->left == 0) round->done = impl.finished_ = true;
                             });
          }
        }
        return true;
      },
      /*will_wait=*/true);
  impl.WaitFor(&round->done);
  if (totals.status.ok()) totals.status = round->report.status;
  totals.removed_parts += round->report.removed_parts;
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
