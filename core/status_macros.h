#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define CISTERN_CONCAT_INNER(a, b) a##b
#define CISTERN_CONCAT(a, b) CISTERN_CONCAT_INNER(a, b)

#define CISTERN_RETURN_IF_ERROR(expression)                   \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

// `result` names a new variable and `declaration` declares one: neither may stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define CISTERN_ASSIGN_OR_RETURN(declaration, expression) \
  CISTERN_ASSIGN_OR_RETURN_INNER(CISTERN_CONCAT(result_, __LINE__), declaration, expression)
#define CISTERN_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                           \
  if (!result.ok()) return std::move(result).status();                  \
  declaration = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)
