#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace cistern {

// For `more` elements, so that adding them cannot fail.
template <typename T>
void MakeRoom(std::vector<T>& list, size_t more = 1) {
  if (list.capacity() - list.size() < more)
    list.reserve(std::max({size_t{8}, 2 * list.size(), list.size() + more}));
}

}  // namespace cistern
