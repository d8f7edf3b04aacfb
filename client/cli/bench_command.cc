#include <string>
#include <vector>

#include "client/cli/bench.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "core/size.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

Json BenchJson(const BenchOptions& bench, const BenchReport& report) {
  const BenchFigures& f = report.figures;
  const double gbps = Rounded(f.gbps), limit = Rounded(f.limit_gbps);
  Json out;
  out["op"] = bench.op;
  out["size"] = bench.size_bytes;
  out["batch"] = bench.batch;
  out["block_tokens"] = bench.block_tokens;
  out["path"] = report.path;
  out["gbps"] = gbps;
  out["ops_per_s"] = Rounded(f.ops_per_s);
  out["items_per_s"] = Rounded(f.items_per_s);
  out["us"] = Json{{"p50", Rounded(f.us_p50)}, {"p99", Rounded(f.us_p99)}};
  out["cpu_s_per_gb"] = Rounded(f.cpu_s_per_gb);
  out["ops"] = f.ops;
  out["failed_ops"] = f.failed_ops;
  if (!report.limit_name.empty()) {
    out["limit"] = Json{{"name", report.limit_name}, {"gbps", limit}};
    out["ratio"] = limit > 0 ? Rounded(gbps / limit) : 0.0;
  }
  return out;
}

std::string BenchText(const Json& r) {
  const auto number = [](const Json& value) { return FormatNumber(value.get<double>()); };
  const auto path = r["path"].get<std::string>(), op = r["op"].get<std::string>();
  // A hash has no parts, a lookup moves none: what they do not have is not shown.
  const std::string what = op == "hash"
                               ? r["batch"].dump() + " blocks of " + r["block_tokens"].dump() + " tokens"
                               : FormatSize(r["size"].get<uint64_t>()) + " x " + r["batch"].dump();
  std::vector<std::vector<std::string>> rows = {
      {"op", op + ", " + what + (path.empty() ? "" : " over " + path)}};
  if (op != "lookup") rows.push_back({"GB/s", number(r["gbps"])});
  rows.push_back({"ops/s", number(r["ops_per_s"])});
  rows.push_back({"items/s", number(r["items_per_s"])});
  rows.push_back({"us p50", number(r["us"]["p50"])});
  rows.push_back({"us p99", number(r["us"]["p99"])});
  if (op != "lookup") rows.push_back({"CPU s/GB", number(r["cpu_s_per_gb"])});
  if (r.contains("limit")) {
    rows.push_back({"limit GB/s", number(r["limit"]["gbps"]), r["limit"]["name"].get<std::string>()});
    rows.push_back({"of the limit", number(r["ratio"])});
  }
  return FormatTable(rows);
}

}  // namespace

int RunBench(const CliOptions& given) {
  if (given.bench.op == "formats") return BenchFormats(given);
  CliOptions options = given;
  BenchOptions& bench = options.bench;
  const bool chain = bench.op == "lookup" || bench.op == "hash";
  if (bench.batch == 0) bench.batch = chain ? kChainBatchDefault : kTransferBatchDefault;
  absl::StatusOr<BenchReport> report = bench.op == "read"     ? BenchRead(options)
                                       : bench.op == "write"  ? BenchWrite(options)
                                       : bench.op == "lookup" ? BenchLookup(options)
                                       : bench.op == "disk"   ? BenchDisk(options)
                                                              : BenchHash(options);
  if (!report.ok()) return Fail(options.json, Words(report.status()));
  const BenchFigures& figures = report->figures;
  if (figures.ops == figures.failed_ops) {
    return Fail(options.json,
                "no " + bench.op + " succeeded; see 'cistern status' for the state of the nodes");
  }
  const Json out = BenchJson(bench, *report);
  PrintResult(options.json, out, BenchText(out));
  if (figures.failed_ops == 0) return kExitDone;
  Note(std::to_string(figures.failed_ops) + " of " + std::to_string(figures.ops) +
       " ops failed; their bytes do not count");
  return kExitShort;
}

}  // namespace cistern
