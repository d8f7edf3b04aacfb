#pragma once

#include <memory>
#include <vector>

#include "core/make_room.h"

namespace cistern {

// Objects that a C library holds a pointer to while an operation is under way. Kept until the pool goes, so
// an operation that the library never ends (it happens when a peer dies) leaves an object behind, and no
// dangling pointer. Owner: a transport; one thread.
template <typename T>
class OpPool {
 public:
  T* Take() {
    if (free_.empty()) {
      MakeRoom(all_);
      free_.reserve(all_.capacity());  // Give takes no memory.
      all_.push_back(std::make_unique<T>());
      return all_.back().get();
    }
    T* object = free_.back();
    free_.pop_back();
    return object;
  }
  void Give(T* object) { free_.push_back(object); }
  size_t size() const { return all_.size(); }
  size_t in_use() const { return all_.size() - free_.size(); }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
};

}  // namespace cistern
