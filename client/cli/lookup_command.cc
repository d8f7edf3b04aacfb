#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "client/cli/plain_layout.h"
#include "client/cli/tokens.h"
#include "client/internal/admin.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

constexpr std::chrono::milliseconds kDeadline{2000};

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  if (path == "-")
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))  // Which a stream would tell of by throwing.
    return absl::InvalidArgumentError(path + " is a folder; give a file of token ids with --tokens");
  errno = 0;
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad())
    return absl::NotFoundError("cannot read " + path + ": " + std::strerror(errno) +
                               "; give a file of token ids with --tokens");
  return text;
}

}  // namespace

int RunLookup(const CliOptions& options) {
  const LookupOptions& lookup = options.lookup;
  const bool plain = lookup.layout.empty() || lookup.layout == "plain";
  const Result<Layout> layout =
      plain ? PlainLayout(lookup.block_tokens, lookup.bytes_per_block) : NamedLayout(lookup.layout);
  if (!layout.ok()) return Fail(options.json, layout.status().message());
  const absl::StatusOr<std::string> text = ReadAll(lookup.tokens_file);
  if (!text.ok()) return Fail(options.json, Words(text.status()));
  const absl::StatusOr<std::vector<uint32_t>> tokens = ParseTokens(*text);
  if (!tokens.ok()) return Fail(options.json, lookup.tokens_file + ": " + Words(tokens.status()));
  Result<std::unique_ptr<Client>> client =
      ConnectClient(options, [](ClientOptions& o) { o.window_bytes = 0; });
  if (!client.ok()) return Fail(options.json, client.status().message());
  const Result<Chain> chain = client.value()->MakeChain(layout.value(), *tokens);
  if (!chain.ok()) return Fail(options.json, chain.status().message());

  internal::ProbeResult found;
  if (chain.value().blocks() > 0) {
    absl::StatusOr<internal::ProbeResult> probed = internal::Probe(*client.value(), chain.value(), kDeadline);
    if (!probed.ok()) return Fail(options.json, Words(probed.status()));
    found = *std::move(probed);
  }
  Json out;
  out["tokens"] = tokens->size();
  out["blocks"] = chain.value().blocks();
  out["hit_tokens"] = found.hit_tokens;
  if (!plain) out["history_tokens"] = found.history_tokens;
  out["groups"] = Json::array();
  for (const LayoutGroup& group : LayoutGroups(layout.value())) {
    out["groups"].push_back(
        Json{{"name", group.name}, {"family", group.family}, {"hit_blocks", found.blocks}});
  }
  out["where"] = Json::array();
  for (uint32_t i = 0; i < found.blocks && i < found.owners.size(); ++i) {
    out["where"].push_back(Json{{"block", i}, {"node", found.owners[i]}, {"tier", "ram"}});
  }
  const bool whole = found.blocks == chain.value().blocks();
  const std::string reason = whole ? "" : std::string(MissReasonName(found.why));
  out["miss_reason"] = reason;
  std::string text_out = out["hit_tokens"].dump() + " of " + out["tokens"].dump() + " tokens cached (" +
                         std::to_string(found.blocks) + " of " + out["blocks"].dump() + " blocks)";
  if (!whole) text_out += "; then " + reason;
  PrintResult(options.json, out, text_out + "\n");
  return kExitDone;
}

}  // namespace cistern
