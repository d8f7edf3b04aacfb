#include "client/cli/replay_output.h"

#include "nlohmann/json.hpp"

namespace cistern {
namespace {

double Gbps(uint64_t bytes, double microseconds) {
  return microseconds > 0 ? Rounded(static_cast<double>(bytes) / microseconds / 1e3) : 0;
}

Json Quantiles(Samples& samples) {
  return Json{{"p50", Rounded(samples.Percentile(0.5))}, {"p99", Rounded(samples.Percentile(0.99))}};
}

}  // namespace

Json ReplayTotalsJson(ReplayTotals& t, const std::vector<std::pair<std::string, uint64_t>>& reasons) {
  Json out;
  out["interrupted"] = t.interrupted;
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
  for (const auto& [name, count] : reasons) out["reasons"][name] = count;
  return out;
}

int ReplayExit(const ReplayTotals& totals) {
  if (totals.interrupted) return kExitInterrupted;
  return totals.wrong_parts > 0 || totals.late_calls > 0 ? kExitShort : kExitDone;
}

std::string NothingRead(const std::string& file, uint64_t requests, uint64_t broken_lines) {
  if (requests > 0) return "";
  if (broken_lines == 0) return file + ": empty; give JSON lines with hash_ids, plain or .zst";
  return file + ": none of its lines (" + std::to_string(broken_lines) +
         ") is a request; give JSON lines with hash_ids, plain or .zst";
}

std::vector<std::vector<std::string>> ReplayTotalsRows(const Json& r, bool verified) {
  const auto number = [&](const char* name) { return r[name].dump(); };
  const auto pair = [&](const char* name) {
    return FormatNumber(r[name]["p50"].get<double>()) + " / " + FormatNumber(r[name]["p99"].get<double>());
  };
  const double ideal = r["blocks"] == 0 ? 0 : r["ideal_hit_blocks"].get<double>() / r["blocks"].get<double>();
  std::vector<std::vector<std::string>> rows = {
      {"requests", number("requests") + (r["interrupted"].get<bool>() ? ", then interrupted" : "")},
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
  };
  for (const auto& [name, count] : r["reasons"].items()) rows.push_back({"  of them " + name, count.dump()});
  rows.push_back({"late calls", number("late_calls")});
  rows.push_back({"seconds", FormatNumber(r["seconds"].get<double>())});
  return rows;
}

}  // namespace cistern
