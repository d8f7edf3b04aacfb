#include <memory>
#include <string>
#include <vector>

#include "client/cli/client_target.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "client/cli/plain_layout.h"
#include "client/cli/replay.h"
#include "core/trace_reader.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

double Gbps(uint64_t bytes, double microseconds) {
  return microseconds > 0 ? Rounded(static_cast<double>(bytes) / microseconds / 1e3) : 0;
}

Json Quantiles(Samples& samples) {
  return Json{{"p50", Rounded(samples.Percentile(0.5))}, {"p99", Rounded(samples.Percentile(0.99))}};
}

Json ReplayJson(Replay& replay) {
  ReplayTotals& t = replay.totals();
  Json out;
  out["requests"] = t.requests;
  out["blocks"] = t.blocks;
  out["ideal_hit_blocks"] = t.ideal_hit_blocks;
  out["hit_blocks"] = t.hit_blocks;
  out["hit_ratio"] =
      t.blocks == 0 ? 0.0 : Rounded(static_cast<double>(t.hit_blocks) / static_cast<double>(t.blocks), 9);
  out["verified_parts"] = t.verified_parts;
  out["wrong_parts"] = t.wrong_parts;
  out["failed_parts"] = t.failed_parts;
  out["refused_parts"] = t.refused_parts;
  out["bytes_read"] = t.bytes_read;
  out["bytes_written"] = t.bytes_written;
  out["read_gbps"] = Gbps(t.bytes_read, t.load_us.sum());
  out["write_gbps"] = Gbps(t.bytes_written, t.store_us.sum());
  out["lookup_us"] = Quantiles(t.plan_us);
  out["load_us"] = Quantiles(t.load_us);
  out["store_us"] = Quantiles(t.store_us);
  out["seconds"] = Rounded(t.seconds);
  out["late_calls"] = t.late_calls;
  out["broken_lines"] = t.broken_lines;
  out["reasons"] = Json::object();
  for (const auto& [name, count] : replay.reasons()) out["reasons"][name] = count;
  out["groups"] = Json::array({Json{{"name", "kv"},
                                    {"family", "history"},
                                    {"verified_parts", t.verified_parts},
                                    {"bytes_written", t.bytes_written}}});
  return out;
}

std::string ReplayText(const Json& r, bool verified) {
  const auto number = [&](const char* name) { return r[name].dump(); };
  const auto pair = [&](const char* name) {
    return FormatNumber(r[name]["p50"].get<double>()) + " / " + FormatNumber(r[name]["p99"].get<double>());
  };
  const double ideal = r["blocks"] == 0 ? 0 : r["ideal_hit_blocks"].get<double>() / r["blocks"].get<double>();
  std::vector<std::vector<std::string>> rows = {
      {"requests", number("requests")},
      {"blocks", number("blocks")},
      {"hit ratio", FormatNumber(r["hit_ratio"].get<double>())},
      {"ideal hit ratio", FormatNumber(ideal)},
      {"read GB/s", FormatNumber(r["read_gbps"].get<double>())},
      {"written GB/s", FormatNumber(r["write_gbps"].get<double>())},
      {"lookup us p50 / p99", pair("lookup_us")},
      {"load us p50 / p99", pair("load_us")},
      {"store us p50 / p99", pair("store_us")},
      {"verified parts", verified ? number("verified_parts") : "not asked for (--verify)"},
      {"wrong parts", number("wrong_parts")},
      {"failed parts", number("failed_parts")},
      {"refused parts", number("refused_parts")},
      {"late calls", number("late_calls")},
      {"seconds", FormatNumber(r["seconds"].get<double>())},
  };
  for (const auto& [name, count] : r["reasons"].items()) rows.push_back({"  of them " + name, count.dump()});
  return FormatTable(rows);
}

// Where the stores' bytes are made: in the put window when it has room, so that nodes on this host take them
// from there.
struct StoreMemory {
  StoreMemory(Client& client, size_t bytes)
      : client_(client), window_(client.AllocateBuffer(bytes)), heap_(window_ != nullptr ? 0 : bytes) {}
  ~StoreMemory() {
    if (window_ != nullptr) client_.FreeBuffer(window_);
  }
  std::byte* data() { return window_ != nullptr ? static_cast<std::byte*>(window_) : heap_.data(); }

 private:
  Client& client_;
  void* const window_;
  std::vector<std::byte> heap_;
};

}  // namespace

int RunReplay(const CliOptions& options) {
  if (const Status known = CheckLayoutName(options.replay.layout); !known.ok())
    return Fail(options.json, known.message());
  absl::StatusOr<std::unique_ptr<TraceReader>> trace = TraceReader::Open(options.replay.file);
  if (!trace.ok()) return Fail(options.json, Words(trace.status()));
  Result<std::unique_ptr<Client>> client = ConnectClient(options);
  if (!client.ok()) return Fail(options.json, client.status().message());

  StoreMemory store(*client.value(), kReplayChunkBytes);
  std::vector<std::byte> load(kReplayChunkBytes);
  ClientTarget target(*client.value(), options.replay);
  Replay replay(options.replay, target, load.data(), store.data());
  const absl::Status ran = replay.Run(**trace);
  const Json result = ReplayJson(replay);
  if (!ran.ok()) {  // A damaged file: what was read of it has been replayed, and is told.
    Note(Words(ran));
    PrintResult(options.json, result, ReplayText(result, options.replay.verify));
    return kExitError;
  }
  PrintResult(options.json, result, ReplayText(result, options.replay.verify));
  const ReplayTotals& totals = replay.totals();
  return totals.wrong_parts > 0 || totals.late_calls > 0 ? kExitShort : kExitDone;
}

}  // namespace cistern
