#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cistern {

// A flag whose value is a number of bytes with a unit, inside [min, max].
CLI::Option* AddSize(CLI::App* app, const std::string& name, uint64_t& value, uint64_t min, uint64_t max,
                     const std::string& help);

// --requests: stop after so many; a negative number is refused, not taken for a huge one.
CLI::Option* AddRequests(CLI::App* app, uint64_t& requests);

}  // namespace cistern
