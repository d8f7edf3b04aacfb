#include "core/trace_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/trace/json_cursor.h"

namespace cistern {
namespace {

// The fields of a line of either form, as far as they were there.
struct Fields {
  int64_t timestamp = -1, in = 0, out = 0, session = 0, start_ms = -1, block = 0, t = -1, keep = -1;
  bool has_ids = false, has_add = false, has_session = false;

  // Where a plain integer field goes; null for a field that nobody reads.
  int64_t* Find(std::string_view name) {
    if (name == "timestamp") return &timestamp;
    if (name == "input_length" || name == "in") return &in;
    if (name == "output_length" || name == "out") return &out;
    if (name == "session") has_session = true;
    if (name == "session" || name == "s") return &session;
    if (name == "start_ms") return &start_ms;
    if (name == "block") return &block;
    if (name == "t") return &t;
    if (name == "keep") return &keep;
    return nullptr;
  }
};

bool FitsUint32(int64_t value) { return value >= 0 && value <= std::numeric_limits<uint32_t>::max(); }

class JsonTraceReader final : public TraceReader {
 public:
  explicit JsonTraceReader(std::unique_ptr<LineSource> lines) : lines_(std::move(lines)) {}

  bool Next(TraceRequest& out, BrokenLine broken) override;
  absl::Status status() const override { return lines_->status(); }

 private:
  enum class Parsed { kRequest, kHeader, kBroken };

  Parsed Parse(std::string_view line, TraceRequest& out);
  bool ParseIds(JsonCursor& json, std::vector<uint64_t>& ids);
  bool ParseRuns(JsonCursor& json);
  bool ParseObject(std::string_view line, TraceRequest& out, Fields& fields);
  Parsed FinishHeader(const Fields& fields);
  Parsed FinishDelta(const Fields& fields, TraceRequest& out);
  Parsed Broken(std::string why) {
    why_ = std::move(why);
    return Parsed::kBroken;
  }

  std::unique_ptr<LineSource> lines_;
  uint64_t line_ = 0;
  std::string why_;
  // The delta form's session: ids of its last good line, and whether the next line may build on them.
  int64_t session_ = -1;
  int64_t session_start_ms_ = 0;
  uint32_t session_block_tokens_ = 0;
  bool follows_ = false;
  std::vector<uint64_t> previous_;
  std::vector<std::pair<uint64_t, uint64_t>> runs_;
};

bool JsonTraceReader::ParseIds(JsonCursor& json, std::vector<uint64_t>& ids) {
  ids.clear();
  if (!json.Take('[')) return false;
  if (json.Take(']')) return true;
  do {
    uint64_t id = 0;
    if (ids.size() == kTraceIdsPerRequestMax || !json.TakeUint(id)) return false;
    ids.push_back(id);
  } while (json.Take(','));
  return json.Take(']');
}

bool JsonTraceReader::ParseRuns(JsonCursor& json) {
  runs_.clear();
  if (!json.Take('[')) return false;
  if (json.Take(']')) return true;
  uint64_t total = 0;
  do {
    uint64_t first = 0;
    uint64_t count = 0;
    if (!(json.Take('[') && json.TakeUint(first) && json.Take(',') && json.TakeUint(count) && json.Take(']')))
      return false;
    // Ids have 32 bits here: the session's number goes above them.
    const bool fits =
        count <= kTraceIdsPerRequestMax && first + count <= uint64_t{1} << 32 && first >> 32 == 0;
    total += count;
    if (!fits || total > kTraceIdsPerRequestMax) return false;
    runs_.emplace_back(first, count);
  } while (json.Take(','));
  return json.Take(']');
}

bool JsonTraceReader::ParseObject(std::string_view line, TraceRequest& out, Fields& fields) {
  JsonCursor json(line);
  if (!json.Take('{')) {
    why_ = "no JSON object";
    return false;
  }
  bool good = true;
  if (!json.Take('}')) {
    do {
      std::string_view name;
      good = json.TakeString(name) && json.Take(':');
      if (!good) break;
      if (name == "hash_ids") {
        good = fields.has_ids = ParseIds(json, out.hash_ids);
      } else if (name == "add") {
        good = fields.has_add = ParseRuns(json);
      } else if (int64_t* const number = fields.Find(name); number != nullptr) {
        good = json.TakeInt(*number);
      } else {
        good = json.SkipValue();
      }
      if (!good) {
        why_ = absl::StrCat("field \"", std::string(name.substr(0, 40)), "\", column ", json.column(), ": ",
                            json.AtEnd() ? "the line ends inside it" : "not what such a field has");
      }
    } while (good && json.Take(','));
    if (!good && why_.empty()) why_ = absl::StrCat("not JSON at column ", json.column());
    if (!good) return false;
    if (!json.Take('}')) {
      why_ = absl::StrCat("not JSON at column ", json.column());
      return false;
    }
  }
  if (!json.AtEnd()) why_ = absl::StrCat("text behind the object at column ", json.column());
  return why_.empty();
}

JsonTraceReader::Parsed JsonTraceReader::FinishHeader(const Fields& fields) {
  follows_ = false;
  session_ = -1;
  if (!FitsUint32(fields.session) || fields.start_ms < 0 || fields.block <= 0 || !FitsUint32(fields.block)) {
    return Broken("session header: session, start_ms or block missing or out of range");
  }
  session_ = fields.session;
  session_start_ms_ = fields.start_ms;
  session_block_tokens_ = static_cast<uint32_t>(fields.block);
  previous_.clear();
  follows_ = true;
  return Parsed::kHeader;
}

JsonTraceReader::Parsed JsonTraceReader::FinishDelta(const Fields& fields, TraceRequest& out) {
  if (session_ < 0 || fields.session != session_) {
    follows_ = false;
    return Broken("its session's header is missing or broken");
  }
  if (!follows_ && fields.keep > 0) return Broken("builds on a line that was left out");
  follows_ = false;  // Until this one is known to be good.
  if (fields.keep < 0 || fields.t < 0) return Broken("keep or t missing");
  const auto keep = static_cast<uint64_t>(fields.keep);
  if (keep > previous_.size()) {
    return Broken(absl::StrCat("keeps ", keep, " ids of a line that has ", previous_.size()));
  }
  uint64_t total = keep;
  for (const auto& [first, count] : runs_) total += count;
  if (total > kTraceIdsPerRequestMax) return Broken("more ids than kTraceIdsPerRequestMax");
  previous_.resize(keep);
  const uint64_t high = static_cast<uint64_t>(session_) << 32;
  for (const auto& [first, count] : runs_) {
    for (uint64_t i = 0; i < count; ++i) previous_.push_back(high | (first + i));
  }
  follows_ = true;
  out.hash_ids.assign(previous_.begin(), previous_.end());
  out.timestamp_ms = session_start_ms_ + fields.t;
  out.block_tokens = session_block_tokens_;
  return Parsed::kRequest;
}

JsonTraceReader::Parsed JsonTraceReader::Parse(std::string_view line, TraceRequest& out) {
  Fields fields;
  why_.clear();
  if (!ParseObject(line, out, fields)) {
    follows_ = false;  // Perhaps a line of the session at hand.
    return Parsed::kBroken;
  }
  if (!FitsUint32(fields.in) || !FitsUint32(fields.out) || !FitsUint32(fields.session)) {
    follows_ = false;
    return Broken("a length or session out of range");
  }
  out.line = line_;
  out.input_tokens = static_cast<uint32_t>(fields.in);
  out.output_tokens = static_cast<uint32_t>(fields.out);
  out.session = static_cast<uint64_t>(fields.session);
  if (fields.has_ids) {
    if (fields.timestamp < 0) return Broken("timestamp missing or negative");
    out.timestamp_ms = fields.timestamp;
    out.block_tokens = kTraceBlockTokensDefault;
    return Parsed::kRequest;
  }
  if (fields.has_add) return FinishDelta(fields, out);
  if (fields.has_session && fields.start_ms >= 0) return FinishHeader(fields);
  follows_ = false;
  return Broken("neither hash_ids nor add nor a session's header");
}

bool JsonTraceReader::Next(TraceRequest& out, BrokenLine broken) {
  while (true) {
    std::string_view line;
    const LineSource::Got got = lines_->Next(kTraceLineBytesMax, line);
    if (got == LineSource::Got::kEnd) return false;
    ++line_;
    if (got == LineSource::Got::kTooLong) {
      follows_ = false;
      broken(line_, absl::StrCat("over ", kTraceLineBytesMax, " bytes"));
      continue;
    }
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;  // A blank line is no request.
    switch (Parse(line, out)) {
      case Parsed::kRequest:
        return true;
      case Parsed::kHeader:
        break;
      case Parsed::kBroken:
        broken(line_, why_);
        break;
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceReader>> TraceReader::Open(const std::string& path, int window_log_max) {
  absl::StatusOr<std::unique_ptr<LineSource>> lines = LineSource::Open(path, window_log_max);
  if (!lines.ok()) return std::move(lines).status();
  return std::make_unique<JsonTraceReader>(*std::move(lines));
}

}  // namespace cistern
