#include "client/cli/flag_size.h"

#include <optional>

#include "CLI/CLI.hpp"
#include "client/cli/options.h"
#include "core/size.h"

namespace cistern {

CLI::Option* AddSize(CLI::App* app, const std::string& name, uint64_t& value, uint64_t min, uint64_t max,
                     const std::string& help) {
  const auto take = [&value, min, max, name](const CLI::results_t& results) {
    const std::optional<uint64_t> size = ParseSize(results.at(0));
    if (!size)
      throw CLI::ValidationError(name, "'" + results[0] + "' is no size; write 4096, 64K, 512M or 3G");
    if (*size < min || *size > max) {
      throw CLI::ValidationError(name,
                                 results[0] + " is outside " + FormatSize(min) + " to " + FormatSize(max));
    }
    value = *size;
    return true;
  };
  return app->add_option(name, take, help)->type_name("SIZE");
}

CLI::Option* AddRequests(CLI::App* app, uint64_t& requests) {
  return app->add_option("--requests", requests, "Stop after so many requests (default: all)")
      ->check(CLI::Range(uint64_t{0}, kTraceRequestsMax));
}

}  // namespace cistern
