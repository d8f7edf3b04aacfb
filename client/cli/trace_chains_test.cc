#include "client/cli/trace_chains.h"

#include <memory>
#include <vector>

#include "client/cli/plain_layout.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

// A chain as the client makes it, for a namespace whose secret is all `secret`.
Chain Sample(uint32_t block_tokens, uint8_t secret = 3) {
  auto rep = std::make_shared<Chain::Rep>();
  rep->layout = PlainLayout(block_tokens, 4096);
  rep->root.namespace_secret.fill(secret);
  return Chain(std::move(rep));
}

TraceRequest Request(std::vector<uint64_t> ids) {
  TraceRequest request;
  request.hash_ids = std::move(ids);
  return request;
}

std::vector<BlockKey> HashedWhole(const Chain& sample, const std::vector<uint64_t>& ids) {
  std::vector<uint32_t> tokens;
  for (uint64_t id : ids) AppendBlockTokens(id, sample.layout().block_tokens, tokens);
  std::vector<BlockKey> keys;
  ChainHasher hasher(sample.rep()->root);
  hasher.AppendAll(tokens, sample.layout().block_tokens, keys);
  return keys;
}

TEST(TraceChains, AreTheHashesOfTheIdsTokens) {
  const Chain sample = Sample(64);
  TraceChains chains(sample);
  for (const std::vector<uint64_t>& ids : {std::vector<uint64_t>{5, 6, 7}, {5, 6, 7, 8}, {5, 9}, {10}, {}}) {
    EXPECT_EQ(chains.Make(Request(ids)).rep()->keys, HashedWhole(sample, ids));
  }
  EXPECT_EQ(chains.hashed_blocks(), 3 + 1 + 1 + 1);
}

TEST(TraceChains, AnIdBehindAnotherParentIsAnotherBlock) {
  const Chain sample = Sample(16);
  TraceChains chains(sample);
  chains.Make(Request({1, 2, 3}));
  for (const std::vector<uint64_t>& ids : {std::vector<uint64_t>{4, 2, 3}, {2, 3}, {1, 3, 2}, {1, 2, 3}}) {
    EXPECT_EQ(chains.Make(Request(ids)).rep()->keys, HashedWhole(sample, ids));
  }
}

TEST(TraceChains, DependOnTheNamespacesSecret) {
  TraceChains one(Sample(16, 1)), other(Sample(16, 2));
  EXPECT_NE(one.Make(Request({1})).rep()->keys, other.Make(Request({1})).rep()->keys);
}

}  // namespace
}  // namespace cistern
