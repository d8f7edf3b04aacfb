#include <csignal>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <string>

#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/output.h"
#include "client/cli/process.h"
#include "core/process_start.h"

namespace cistern {
namespace {

using Command = int (*)(const CliOptions&);

int Main(int argc, char** argv) {
  OccupyStandardStreams();
  CaptureEnvironment();  // What `up` hands to the cluster: without the next line's change.
  // gRPC tells of every refused connection on stderr; what people need of it is in our one line (F65). It
  // reads these once, before its first call.
  setenv("GRPC_VERBOSITY", "NONE", 1);
  std::signal(SIGPIPE, SIG_IGN);
  CliOptions options;
  if (std::optional<int> code = ParseFlags(argc, argv, options)) return Finish(*code);
  if (const absl::Status enough = CheckOpenFiles(kCliOpenFilesMin); !enough.ok())
    return Finish(Fail(options.json, std::string(enough.message())));
  static const std::map<std::string, Command> kCommands = {
      {"up", RunUp},
      {"down", RunDown},
      {"status", RunStatus},
      {"peers", RunPeers},
      {"replay", RunReplay},
      {"bench", RunBench},
      {"lookup", RunLookup},
      {"fsck", RunFsck},
      {"drain", RunDrain},
      {"quota list", RunQuotaList},
      {"quota set", RunQuotaSet},
      {"top", RunTop},
      {"calc economics", RunCalcEconomics},
      {"calc trace", RunCalcTrace},
      {"calc memory", RunCalcMemory},
      {"layout list", RunLayoutList},
      {"layout show", RunLayoutShow},
      {"layout check", RunLayoutCheck},
      {"layout diff", RunLayoutDiff},
      {"layout from-config", RunLayoutFromConfig},
      {"sim eviction", RunSimEviction},
  };
  try {
    return Finish(kCommands.at(options.command)(options));
  } catch (const std::exception& error) {  // Only libraries throw: out of memory, a file that vanished.
    return Finish(Fail(options.json, std::string("cannot go on: ") + error.what()));
  }
}

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) { return cistern::Main(argc, argv); }
