#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "client/core/testing/client_fixture.h"

namespace cistern {

// How a store's bytes reach the node: with the frame, copied into the put window, or from it.
enum class StorePath { kInline, kStaged, kWindow };

inline std::string StorePathName(const ::testing::TestParamInfo<StorePath>& path) {
  return path.param == StorePath::kInline ? "Inline" : path.param == StorePath::kStaged ? "Staged" : "Window";
}

class StoreFixture : public ClientFixture, public ::testing::WithParamInterface<StorePath> {
 protected:
  StoreFixture() {
    auto window = PutWindow::Create(size_t{64} << 20);
    EXPECT_TRUE(window.ok()) << window.status();
    window_.emplace(*std::move(window));
    options_.window = &*window_;
  }
  ~StoreFixture() override { core_.reset(); }
  void AddNodes(int count) {
    for (int i = 1; i <= count; ++i) {
      AddNode("node-" + std::to_string(i));
      nodes_.back()->one_sided = GetParam() != StorePath::kInline;
    }
  }
  struct Source {
    std::vector<std::vector<std::byte>> memory;
    std::vector<ConstSegment> segments;
    std::vector<uint32_t> ends;
    ConstPageView view() const { return {segments, ends}; }
  };
  Source MakeSource(const std::vector<BlockKey>& keys, uint32_t first, uint32_t count) {
    Source source;
    const size_t bytes = part_bytes_ * coords_.size();
    for (uint32_t i = 0; i < count; ++i) {
      source.memory.emplace_back(bytes);
      std::byte* at = source.memory.back().data();
      if (GetParam() == StorePath::kWindow) {
        at = static_cast<std::byte*>(window_->Allocate(bytes));
        EXPECT_NE(at, nullptr);
      }
      for (size_t c = 0; c < coords_.size(); ++c) {
        const auto want = BytesOf(keys[first + i], coords_[c]);
        std::copy(want.begin(), want.end(), at + c * part_bytes_);
      }
      if (GetParam() == StorePath::kWindow) {
        source.segments.push_back({at, bytes});
      } else {
        source.segments.push_back({at, 777});
        source.segments.push_back({at + 777, bytes - 777});
      }
      source.ends.push_back(static_cast<uint32_t>(source.segments.size()));
    }
    return source;
  }
  StoreResult Store(const std::vector<BlockKey>& keys, uint32_t first, const Source& source,
                    Nanos deadline = 0) {
    StoreResult result;
    core_->Store(Spec(keys, deadline), first, source.view(), result.Take());
    EXPECT_TRUE(RunUntil(result.done));
    return result;
  }
  uint64_t PutBytes() const {
    return Counter("client_window_put_bytes_total") + Counter("client_staged_put_bytes_total") +
           Counter("client_inline_put_bytes_total");
  }
  std::optional<PutWindow> window_;
};

}  // namespace cistern
