#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "client/cli/bench_cluster.h"
#include "client/cli/options.h"
#include "client/cli/plain_layout.h"

namespace cistern {

inline bool IsStored(const StoreReport& report) {
  return report.status.ok() && std::all_of(report.pages.begin(), report.pages.end(),
                                           [](PageResult page) { return page == PageResult::kOk; });
}

// Chains of `batch` blocks that nobody has stored before, and the memory that they are stored from: each the
// next pages of `memory`, over and over.
class FreshStores {
 public:
  struct Next {
    const Chain* chain = nullptr;  // Null: Prepare has to make more.
    std::span<const ConstPage> pages;
  };

  FreshStores(Client& client, const Layout& layout, uint64_t part_bytes, uint32_t batch, std::byte* memory,
              size_t pages)
      : client_(client),
        layout_(layout),
        batch_(batch),
        // Another run's chains would be there already.
        purpose_(uint64_t{std::random_device()()} << 32 | std::random_device()()),
        want_(std::clamp<uint64_t>(kPreparedBytesFirst / (part_bytes * batch), 4, kPreparedChainsMax)) {
    for (size_t i = 0; i < pages; ++i) pages_.emplace_back(memory + i * part_bytes, part_bytes);
  }

  // Hashing is the engine's work on both the read and the write side, and has a bench of its own. Chains
  // given out are gone then.
  void Prepare() {
    if (used_ == chains_.size() && used_ > 0) want_ = std::min(want_ * 2, kPreparedChainsMax);
    chains_.erase(chains_.begin(), chains_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ = 0;
    while (chains_.size() < want_) {
      absl::StatusOr<Chain> chain = MakeBenchChain(client_, layout_, purpose_, number_++, batch_);
      if (!chain.ok()) return;  // Take says that there is no more.
      chains_.push_back(*std::move(chain));
    }
  }
  Next Take() {
    if (used_ == chains_.size()) return {};
    const Next next{&chains_[used_++], std::span(pages_).subspan(at_, batch_)};
    at_ = at_ + 2 * batch_ <= pages_.size() ? at_ + batch_ : 0;
    return next;
  }

 private:
  static constexpr uint64_t kPreparedBytesFirst = uint64_t{256} << 20;
  static constexpr uint64_t kPreparedChainsMax = 1 << 17;

  Client& client_;
  const Layout layout_;
  const uint32_t batch_;
  const uint64_t purpose_;
  uint64_t want_;
  uint64_t number_ = 0;
  std::vector<Chain> chains_;
  size_t used_ = 0;
  std::vector<ConstPage> pages_;
  size_t at_ = 0;
};

}  // namespace cistern
