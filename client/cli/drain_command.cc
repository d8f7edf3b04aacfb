#include <string>

#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "client/cli/router_words.h"
#include "client/control/router_link.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

constexpr Nanos kRouterDeadline = 2 * kSecond;

// What the node's state means for who asked.
std::string Consequence(NodeState state, bool undo) {
  if (state == NodeState::kGone)
    return undo ? "it gets its share when it is back" : "it gets nothing new when it is back";
  return undo ? "it gets its share of what is stored again"
              : "it gets nothing new, and what it holds is read until it is stopped";
}

}  // namespace

int RunDrain(const CliOptions& options) {
  if (!IsNodeId(options.drain.node))
    return Fail(options.json, "'" + options.drain.node + "' is no node's id; `cistern status` lists them");
  const absl::StatusOr<DrainResult> result =
      DrainNode(options.router, options.drain.node, options.drain.undo, kRouterDeadline);
  if (absl::IsNotFound(result.status()))
    return Fail(options.json, Words(result.status()) + "; `cistern status` lists them");
  if (!result.ok()) return Fail(options.json, RouterWords(Words(result.status())));
  const std::string state(NodeStateName(result->state));
  const Json out{{"node", options.drain.node}, {"state", state}, {"epoch", result->epoch}};
  PrintResult(
      options.json, out,
      options.drain.node + " is " + state + ": " + Consequence(result->state, options.drain.undo) + "\n");
  return kExitDone;
}

}  // namespace cistern
