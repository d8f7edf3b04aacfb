#pragma once

#include "cistern/client.h"
#include "client/cli/options.h"
#include "core/trace_reader.h"

namespace cistern {

// One function a command. Each returns the process's exit code (0 done, 1 falls short, 2 user or connection
// error) and has printed its result by then.
int RunUp(const CliOptions& options);
int RunDown(const CliOptions& options);
int RunStatus(const CliOptions& options);
int RunPeers(const CliOptions& options);
int RunReplay(const CliOptions& options);
// Replays in a layout of several groups, and what of it needs no cluster.
int RunGroupReplay(const CliOptions& options, TraceReader& trace, Client& client, const Layout& layout);
int RunReplayDry(const CliOptions& options, const Layout& layout);
int RunBench(const CliOptions& options);
int RunLookup(const CliOptions& options);
int RunCalcEconomics(const CliOptions& options);
int RunCalcTrace(const CliOptions& options);
int RunCalcMemory(const CliOptions& options);
int RunLayoutList(const CliOptions& options);
int RunLayoutShow(const CliOptions& options);
int RunLayoutCheck(const CliOptions& options);
int RunLayoutDiff(const CliOptions& options);
int RunLayoutFromConfig(const CliOptions& options);
int RunSimEviction(const CliOptions& options);
int RunFsck(const CliOptions& options);
int RunQuotaList(const CliOptions& options);
int RunDrain(const CliOptions& options);
int RunQuotaSet(const CliOptions& options);
int RunTop(const CliOptions& options);

}  // namespace cistern
