#include "proto/daemon.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace cistern {
namespace {

// Libraries' own words go to our log, not between its lines.
void LogGrpc(gpr_log_func_args* args) {
  spdlog::debug("grpc {}:{}: {}", args->file, args->line, args->message);
}
void LogProtobuf(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  spdlog::debug("protobuf: {}", message);
}

}  // namespace

sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signals;
}

void StartLog(const std::string& name, const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt(name));
  spdlog::set_level(spdlog::level::from_str(level == "warn" ? "warning" : level));
  spdlog::flush_on(spdlog::level::info);
  gpr_set_log_function(LogGrpc);
  google::protobuf::SetLogHandler(LogProtobuf);
}

}  // namespace cistern
