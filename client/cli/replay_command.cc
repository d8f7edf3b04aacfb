#include <memory>
#include <string>
#include <vector>

#include "client/cli/client_target.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/interrupt.h"
#include "client/cli/output.h"
#include "client/cli/replay.h"
#include "client/cli/replay_output.h"
#include "client/cli/store_memory.h"
#include "core/trace_reader.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

Json ReplayJson(Replay& replay) {
  ReplayTotals& t = replay.totals();
  Json out = ReplayTotalsJson(t, replay.reasons());
  out["groups"] = Json::array({Json{{"name", "kv"},
                                    {"family", "history"},
                                    {"verified_parts", t.verified_parts},
                                    {"bytes_written", t.bytes_written}}});
  return out;
}

std::string ReplayText(const Json& result, bool verified) {
  return FormatTable(ReplayTotalsRows(result, verified));
}

}  // namespace

int RunReplay(const CliOptions& options) {
  const bool plain = options.replay.layout.empty() || options.replay.layout == "plain";
  Result<Layout> layout = plain ? Layout{} : NamedLayout(options.replay.layout, options.replay.scale);
  if (!layout.ok()) return Fail(options.json, layout.status().message() + "; without --layout: plain blocks");
  if (options.replay.dry_run) {
    if (plain) return Fail(options.json, "--dry-run needs a layout with tails; see docs/layouts");
    return RunReplayDry(options, layout.value());
  }
  absl::StatusOr<std::unique_ptr<TraceReader>> trace = TraceReader::Open(options.replay.file);
  if (!trace.ok()) return Fail(options.json, Words(trace.status()));
  Result<std::unique_ptr<Client>> client = ConnectClient(options);
  if (!client.ok()) return Fail(options.json, client.status().message());
  if (!plain) return RunGroupReplay(options, **trace, *client.value(), layout.value());

  StoreMemory store(*client.value(), kReplayChunkBytes);
  std::vector<std::byte> load(kReplayChunkBytes);
  ClientTarget target(*client.value(), options.replay);
  Replay replay(options.replay, target, load.data(), store.data());
  const Interrupt interrupt;
  const absl::Status ran = replay.Run(**trace);
  const Json result = ReplayJson(replay);
  if (!ran.ok()) {  // A damaged file: what was read of it has been replayed, and is told.
    Note(Words(ran));
    PrintResult(options.json, result, ReplayText(result, options.replay.verify));
    return kExitError;
  }
  const ReplayTotals& totals = replay.totals();
  if (const std::string why = NothingRead(options.replay.file, totals.requests, totals.broken_lines);
      !why.empty() && !totals.interrupted) {
    return Fail(options.json, why);
  }
  PrintResult(options.json, result, ReplayText(result, options.replay.verify));
  return ReplayExit(totals);
}

}  // namespace cistern
