#include "client/cli/layout_flags.h"

#include <string>

#include "CLI/CLI.hpp"
#include "client/cli/flag_size.h"
#include "core/calc/memory.h"
#include "core/layout_spec.h"
#include "core/size.h"

namespace cistern {
namespace {

constexpr uint64_t kDeviceBytesMax = uint64_t{1} << 44;
constexpr uint64_t kWeightsBytesMax = uint64_t{1} << 50;

// A number of tokens, plain or with K, M, G for powers of 1024.
void AddTokenCount(CLI::App* command, const std::string& name, uint64_t& value, const std::string& help) {
  const auto take = [&value, name](const CLI::results_t& results) {
    const std::optional<uint64_t> tokens = ParseSize(results.at(0));
    if (!tokens)
      throw CLI::ValidationError(name, "'" + results[0] + "' is no number of tokens; write 8192, 128K or 1M");
    if (*tokens < 1 || *tokens > calc::kMemoryTokensMax)
      throw CLI::ValidationError(name, results[0] + " is outside 1 to " + FormatSize(calc::kMemoryTokensMax));
    value = *tokens;
    return true;
  };
  command->add_option(name, take, help)->type_name("TOKENS")->required();
}

void AddFromConfig(CLI::App* layout, LayoutOptions& o) {
  CLI::App* from = layout->add_subcommand("from-config", "A layout from a model's Hugging Face config.json");
  from->add_option("FILE", o.config, "The config.json")->required();
  from->add_option("--rows", o.rows,
                   "Row format: bf16, fp16, fp8, fp8/bf16, fp8/fp4 (default: the config's dtype)");
  from->add_option("--block-tokens", o.block_tokens,
                   "Tokens a block (default: so that parts are at most 4 MiB)")
      ->check(CLI::Range(1u, kBlockTokensMax));
  from->add_option("--model", o.model, "Name to write (default: the config's)");
  from->add_option("--state-dtype", o.state_dtype, "Of recurrent states (default: fp32)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
}

}  // namespace

void AddLayout(CLI::App& app, CliOptions& out) {
  CLI::App* layout = app.add_subcommand("layout", "What bytes a block has for each model; needs no cluster");
  layout->require_subcommand(1);
  layout->fallthrough();
  LayoutOptions& o = out.layout;
  layout->add_subcommand("list", "The layouts that are built in");
  CLI::App* show = layout->add_subcommand("show", "One layout: groups, parts, sizes");
  show->add_option("NAME", o.name, "Name as in list, a model's name, MODEL:ROWS, or a file")->required();
  show->add_flag("--text", o.text, "The text form alone, for a file of one's own");
  layout->add_subcommand("check", "Is each file a layout that can be?")
      ->add_option("FILE", o.files, "Layouts in text form")
      ->required();
  CLI::App* diff = layout->add_subcommand("diff", "Which fields differ between two layouts");
  diff->add_option("A", o.before, "Name or file")->required();
  diff->add_option("B", o.after, "Name or file")->required();
  AddFromConfig(layout, o);
}

void AddCalcMemory(CLI::App* calc, CliOptions& out) {
  CLI::App* memory = calc->add_subcommand("memory", "How much KV a context takes, and how many fit");
  CalcMemoryOptions& o = out.calc_memory;
  memory->add_option("--model", o.model, "Model or layout, as in 'cistern layout list'")->required();
  AddTokenCount(memory, "--context", o.context, "Tokens of one sequence");
  memory->add_option("--batch", o.batch, "Sequences")
      ->check(CLI::Range(uint64_t{1}, calc::kMemoryBatchMax))
      ->capture_default_str();
  memory->add_option("--dtype", o.rows, "Row format, ROWS or ROWS/INDEX (default: what engines serve)");
  memory->add_option("--tp", o.tp, "Tensor-parallel ranks")
      ->check(CLI::Range(1u, calc::kMemoryTpMax))
      ->capture_default_str();
  AddSize(memory, "--hbm", o.hbm_bytes, 1, kDeviceBytesMax, "Memory of one device: how many sequences fit?");
  AddSize(memory, "--weights", o.weights_bytes, 0, kWeightsBytesMax,
          "Weights of the whole model, with --hbm");
  AddSize(memory, "--reserve", o.reserve_bytes, 0, kDeviceBytesMax,
          "Of one device, for activations and the rest, with --hbm");
  memory->add_option("--compare", o.compare, "Another model or layout to put beside it; may be repeated")
      ->take_all();
  memory->add_option("--svg", o.svg, "Write the bar chart to this file")->type_name("FILE");
}

}  // namespace cistern
