#include "client/cli/trace_chains.h"

#include <memory>
#include <utility>

#include "client/cli/plain_layout.h"

namespace cistern {
namespace {

constexpr uint64_t kNoParent = UINT64_MAX;

}  // namespace

TraceChains::TraceChains(const Chain& sample)
    : sample_(*sample.rep()), keep_(sample), hasher_(sample_.root) {}

BlockKey TraceChains::Hash(uint64_t id, const BlockKey* previous) {
  ++hashed_;
  tokens_.clear();
  AppendBlockTokens(id, sample_.layout.block_tokens, tokens_);
  if (previous == nullptr) {
    hasher_.Reset();
  } else {
    hasher_.ResumeAfter(previous->hash);
  }
  return hasher_.Append(tokens_);
}

Chain TraceChains::Make(const TraceRequest& request) {
  auto rep = std::make_shared<Chain::Rep>();
  rep->layout = sample_.layout;
  rep->spec = sample_.spec;
  rep->layout_id = sample_.layout_id;
  rep->root = sample_.root;
  rep->keys.reserve(request.hash_ids.size());
  uint64_t parent = kNoParent;
  bool sound = true;  // False from the first block on whose id stands for another prefix elsewhere.
  for (uint64_t id : request.hash_ids) {
    const auto at = known_.find(id);
    sound = sound && (at == known_.end() || at->second.parent == parent);
    if (sound && at != known_.end()) {
      rep->keys.push_back(at->second.key);
    } else {
      rep->keys.push_back(Hash(id, rep->keys.empty() ? nullptr : &rep->keys.back()));
      if (sound) known_.emplace(id, Known{parent, rep->keys.back()});
    }
    parent = id;
  }
  return Chain(std::move(rep));
}

}  // namespace cistern
