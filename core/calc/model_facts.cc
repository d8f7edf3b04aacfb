#include "core/calc/model_facts.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/calc/embedded.h"
#include "core/calc/json_fields.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint32_t kHeadsMax = 4096;
constexpr uint32_t kDimMax = 65536;
constexpr uint64_t kCapMax = uint64_t{1} << 30;

absl::StatusOr<AttentionTerm> ParseTerm(const nlohmann::json& object, const std::string& where) {
  static const std::set<std::string> kFamilies = {"full", "window", "topk", "compressed", "indexer", "state"};
  JsonFields fields(object, where);
  AttentionTerm term;
  term.family = fields.Text("family");
  term.layers = static_cast<uint32_t>(fields.Count("layers", 1, kModelLayersMax));
  term.heads = static_cast<uint32_t>(fields.Count("heads", 1, kHeadsMax));
  term.qk_dim = static_cast<uint32_t>(fields.Count("qk_dim", 1, kDimMax));
  const bool scores_only = term.family == "indexer";
  term.v_dim = static_cast<uint32_t>(fields.Count("v_dim", scores_only ? 0 : 1, scores_only ? 0 : kDimMax));
  term.stride = static_cast<uint32_t>(fields.CountOr("stride", 1, kDimMax, 1));
  term.cap = fields.CountOr("cap", 1, kCapMax, 0);
  if (!kFamilies.contains(term.family))
    fields.Refuse(absl::StrCat("family '", term.family.substr(0, 40), "' is none of ",
                               JoinNames(std::vector<std::string>(kFamilies.begin(), kFamilies.end()))));
  if ((term.family == "window" || term.family == "topk") && term.cap == 0)
    fields.Refuse("field cap is missing");
  CISTERN_RETURN_IF_ERROR(fields.Finish());
  return term;
}

absl::StatusOr<ModelFacts> ParseModel(const nlohmann::json& object, std::string where) {
  if (object.is_object() && object.contains("name") && object["name"].is_string())
    absl::StrAppend(&where, " (", object["name"].get_ref<const std::string&>().substr(0, 40), ")");
  JsonFields fields(object, where);
  ModelFacts model;
  model.name = fields.Text("name");
  model.aliases = fields.Texts("aliases");
  model.linear_params = fields.Number("linear_params", 1, 1e15);
  model.kv_bytes_per_token = fields.Number("kv_bytes_per_token", 0, 1e9);
  model.tail_bytes = fields.CountOr("tail_bytes", 0, uint64_t{1} << 40, 0);
  model.row_format = fields.TextOr("row_format", "bf16");
  model.source = fields.Text("source");
  model.note = fields.TextOr("note", "");
  const nlohmann::json* const terms = fields.Value("attention");
  if (terms == nullptr || !terms->is_array() || terms->empty() || terms->size() > kAttentionTermsMax) {
    fields.Refuse(absl::StrCat("field attention is no list of 1 to ", kAttentionTermsMax, " terms"));
  }
  CISTERN_RETURN_IF_ERROR(fields.Finish());
  for (size_t i = 0; i < terms->size(); ++i) {
    CISTERN_ASSIGN_OR_RETURN(AttentionTerm term,
                             ParseTerm((*terms)[i], absl::StrCat(where, ", attention ", i + 1)));
    model.attention.push_back(std::move(term));
  }
  return model;
}

}  // namespace

absl::StatusOr<std::vector<ModelFacts>> ParseModels(std::string_view text, const std::string& where) {
  CISTERN_ASSIGN_OR_RETURN(const nlohmann::json list, ParseDataList(text, "models", where));
  std::vector<ModelFacts> models;
  for (size_t i = 0; i < list.size(); ++i) {
    CISTERN_ASSIGN_OR_RETURN(ModelFacts model, ParseModel(list[i], absl::StrCat(where, ": model ", i + 1)));
    models.push_back(std::move(model));
  }
  return models;
}

absl::StatusOr<std::vector<ModelFacts>> LoadModels(const std::string& path) {
  CISTERN_ASSIGN_OR_RETURN(std::vector<ModelFacts> models, ParseModels(EmbeddedModels(), "models.json"));
  if (path.empty()) return models;
  CISTERN_ASSIGN_OR_RETURN(const std::string text, ReadDataFile(path));
  CISTERN_ASSIGN_OR_RETURN(std::vector<ModelFacts> more, ParseModels(text, path));
  MergeEntries(models, std::move(more));
  return models;
}

absl::StatusOr<ModelFacts> FindModel(const std::vector<ModelFacts>& models, std::string_view name) {
  const int at = IndexOf(models, name);
  if (at >= 0) return models[static_cast<size_t>(at)];
  std::vector<std::string> names;
  names.reserve(models.size());
  for (const ModelFacts& model : models) names.push_back(model.name);
  return absl::NotFoundError(absl::StrCat("there is no model '", std::string(name.substr(0, 80)),
                                          "'; known are ", JoinNames(names)));
}

}  // namespace cistern
