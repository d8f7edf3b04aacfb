#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "client/internal/admin.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

constexpr std::chrono::milliseconds kNodeDeadline{1000};

Json RowJson(const std::string& node, const QuotaReply::Row& row) {
  return Json{{"node", node},
              {"tenant", row.tenant},
              {"quota_bytes", row.limits.quota_bytes},
              {"floor_bytes", row.limits.floor_bytes},
              {"when_full", row.limits.reject_when_full ? "reject" : "evict-own"},
              {"ttl_s", row.limits.retention.ttl_s},
              {"ttl_slides", row.limits.retention.sliding},
              {"pin", std::string(PinKindName(row.limits.retention.pin))},
              {"used_bytes", row.used_bytes},
              {"pinned_bytes", row.pinned_bytes},
              {"evicted_parts", row.evicted_parts},
              {"evicted_bytes", row.evicted_bytes},
              {"rejected_parts", row.rejected_parts},
              {"rejected_bytes", row.rejected_bytes}};
}

int Run(const CliOptions& options, const QuotaRequest& request) {
  Result<std::unique_ptr<Client>> client = ConnectClient(options, [](ClientOptions& o) {
    o.window_bytes = 0;
    o.admin = true;
  });
  if (!client.ok()) return Fail(options.json, client.status().message());
  Json rows = Json::array();
  for (const NodeEntry& node : internal::Map(*client.value()).nodes) {
    const absl::StatusOr<QuotaReply> reply =
        internal::AskQuota(*client.value(), node.id, request, kNodeDeadline);
    if (!reply.ok()) return Fail(options.json, Words(reply.status()));
    for (const QuotaReply::Row& row : reply->rows) rows.push_back(RowJson(node.id, row));
  }
  std::vector<std::vector<std::string>> table = {{"node", "tenant", "used MiB", "of MiB", "floor MiB",
                                                  "pinned MiB", "when full", "evicted", "rejected"}};
  for (const Json& row : rows) {
    const auto mib = [&](const char* name) { return FormatNumber(row[name].get<double>() / (1 << 20)); };
    table.push_back({row["node"].get<std::string>(), row["tenant"].get<std::string>(), mib("used_bytes"),
                     mib("quota_bytes"), mib("floor_bytes"), mib("pinned_bytes"),
                     row["when_full"].get<std::string>(), row["evicted_parts"].dump(),
                     row["rejected_parts"].dump()});
  }
  PrintResult(options.json, Json{{"quotas", rows}}, FormatTable(table));
  return kExitDone;
}

}  // namespace

int RunQuotaList(const CliOptions& options) { return Run(options, {}); }

int RunQuotaSet(const CliOptions& options) {
  QuotaRequest request;
  request.tenant = options.quota.tenant;
  request.limits.quota_bytes = options.quota.bytes;
  request.limits.floor_bytes = options.quota.floor_bytes;
  request.limits.reject_when_full = options.quota.when_full == "reject";
  request.limits.retention = {.ttl_s = options.quota.retention.ttl_s,
                              .sliding = options.quota.retention.slides,
                              .pin = ParsePinKind(options.quota.retention.pin).value_or(PinKind::kNone)};
  return Run(options, request);
}

}  // namespace cistern
