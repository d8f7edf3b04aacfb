#pragma once

#include <string>

namespace cistern {

// A message of the library, and where it says that no router answers, how a command is told of another one.
inline std::string RouterWords(std::string message) {
  if (message.starts_with("no router at ")) message += " (--router or the variable CISTERN_ROUTER)";
  return message;
}

}  // namespace cistern
