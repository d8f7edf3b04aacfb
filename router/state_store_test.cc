#include "router/state_store.h"

#include <filesystem>
#include <fstream>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "router/router.h"

namespace cistern {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "cistern-store-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }

 private:
  std::string path_;
};

// The same tests run over each kind; `reopen` is a process that ends and starts again.
class StateStoreTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    if (std::string(GetParam()) == "memory") {
      if (!store_) store_ = std::make_unique<MemoryStateStore>();
      return;
    }
    store_.reset();
    absl::StatusOr<std::unique_ptr<StateStore>> opened = OpenRocksdbStateStore(dir_.path() + "/state");
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  TempDir dir_;
  std::unique_ptr<StateStore> store_;
};

TEST_P(StateStoreTest, BeginsEmpty) { EXPECT_TRUE(store_->LoadAll().value().empty()); }

TEST_P(StateStoreTest, KeepsWhatWasCommittedOverARestart) {
  ASSERT_TRUE(store_->Commit({{"a", "1"}, {"b", std::string("\0\xff", 2)}, {"c", ""}}).ok());
  ASSERT_TRUE(store_->Commit({{"a", "2"}, {"b", std::nullopt}, {"never", std::nullopt}}).ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(store_->LoadAll().value(), ElementsAre(Pair("a", "2"), Pair("c", "")));
    Reopen();
  }
}

TEST_P(StateStoreTest, RefusesTooManyChanges) {
  const std::vector<StateChange> changes(kStateChangesMax + 1, StateChange{"a", "1"});
  EXPECT_EQ(store_->Commit(changes).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(store_->LoadAll().value().empty());
}

TEST_P(StateStoreTest, ARouterComesBackWithItsNodes) {
  const ClusterKey key = ClusterKey::Generate();
  ClusterMap before;
  for (int life = 0; life < 2; ++life) {
    SimClock clock;
    Random random(static_cast<uint64_t>(life));
    std::unique_ptr<Router> router = Router::Create({}, key, *store_, clock, random).value();
    if (life == 0) {
      RegisterRequest request;
      request.node_id = "node-1";
      request.boot_nonce = 5;
      request.shards = {{"127.0.0.1:1", "", ""}};
      request.proof = RegisterProof(key, request);
      ASSERT_TRUE(router->Register(request).ok());
      before = router->map();
    } else {
      EXPECT_EQ(router->map(), before);
    }
    router.reset();
    Reopen();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, StateStoreTest, testing::Values("memory", "rocksdb"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(RocksdbStateStore, IsOpenInOneProcessOnly) {
  TempDir dir;
  auto first = OpenRocksdbStateStore(dir.path() + "/state");
  ASSERT_TRUE(first.ok());
  const absl::Status second = OpenRocksdbStateStore(dir.path() + "/state").status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("another process"));
}

TEST(RocksdbStateStore, DamageIsNamedWithWhatToDo) {
  TempDir dir;
  const std::string path = dir.path() + "/state";
  {
    auto store = OpenRocksdbStateStore(path);
    ASSERT_TRUE((*store)->Commit({{"a", "1"}}).ok());
  }
  std::ofstream(path + "/CURRENT", std::ios::trunc) << "no manifest\n";
  const absl::Status status = OpenRocksdbStateStore(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("move the folder away"));
}

TEST(RocksdbStateStore, ATornLogTailLosesOnlyWhatFollowsIt) {
  TempDir dir;
  const std::string path = dir.path() + "/state";
  {
    auto store = OpenRocksdbStateStore(path);
    ASSERT_TRUE((*store)->Commit({{"a", "1"}}).ok());
  }
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    if (file.path().extension() == ".log")
      std::ofstream(file.path(), std::ios::app | std::ios::binary) << "torn";
  }
  auto store = OpenRocksdbStateStore(path);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT((*store)->LoadAll().value(), ElementsAre(Pair("a", "1")));
}

TEST(RocksdbStateStore, AFolderThatCannotBeMadeIsOneClearLine) {
  const absl::Status status = OpenRocksdbStateStore("/proc/no/such").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("/proc/no/such"));
}

}  // namespace
}  // namespace cistern
