#include "client/cli/client_target.h"

#include <utility>
#include <vector>

#include "client/cli/plain_layout.h"
#include "core/bytes.h"

namespace cistern {
namespace {

CallOptions Within() {
  CallOptions options;
  options.deadline = kReplayDeadline;
  return options;
}

}  // namespace

Status ClientTarget::Begin(const TraceRequest& request) {
  const uint32_t block_tokens = options_.block_tokens != 0 ? options_.block_tokens : request.block_tokens;
  if (!chains_ || block_tokens != block_tokens_) {
    std::vector<uint32_t> tokens;
    AppendBlockTokens(0, block_tokens, tokens);
    const Result<Chain> sample =
        client_.MakeChain(PlainLayout(block_tokens, options_.bytes_per_block), tokens);
    if (!sample.ok()) return sample.status();
    chains_.emplace(sample.value());
    block_tokens_ = block_tokens;
  }
  chain_ = chains_->Make(request);
  return Status();
}

uint64_t ClientTarget::Seed(uint32_t block) const { return LoadLe<uint64_t>(chain_.hash(block).data()); }

Result<uint32_t> ClientTarget::Plan() {
  Result<Hit> hit = client_.PlanWait(chain_, Within());
  if (!hit.ok()) return hit.status();
  hit_ = std::move(hit.value());
  return hit_.blocks();
}

LoadReport ClientTarget::Load(uint32_t first, std::span<const Page> pages) {
  return client_.LoadWait(hit_, first, pages, Within());
}

StoreReport ClientTarget::Store(uint32_t first, std::span<const ConstPage> pages) {
  CallOptions options = Within();
  options.ttl = std::chrono::seconds(options_.keep.ttl_s);
  options.ttl_slides = options_.keep.slides;
  options.pin = options_.keep.pin == "hard"   ? Pin::kHard
                : options_.keep.pin == "soft" ? Pin::kSoft
                                              : Pin::kNone;
  return client_.StoreWait(chain_, first, pages, options);
}

void ClientTarget::End() {
  client_.Release(hit_);
  hit_ = Hit();
}

}  // namespace cistern
