#pragma once

#include <memory>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "cistern/client.h"
#include "core/ids.h"
#include "core/mutex.h"

namespace cistern {

inline constexpr size_t kRequestsKnownMax = 4096;  // Beyond that, hits are found anew.

// The hits that a client has given to requests with a name, so that one that asks again gets the same. Holds
// no hit alive. Owner: Client::Impl. Any thread.
class RequestCache {
 public:
  // An empty hit when there is none, or it is over.
  Hit Find(const BlockHash& request) ABSL_LOCKS_EXCLUDED(mutex_);
  void Put(const BlockHash& request, const Hit& hit) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  std::unordered_map<BlockHash, std::weak_ptr<Hit::Rep>, BlockHashHasher> hits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern
