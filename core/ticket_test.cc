#include "core/ticket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

namespace cistern {
namespace {

using ::testing::HasSubstr;
constexpr int64_t kNow = 1'800'000'000;

// An empty folder that goes with the test.
class ClusterKeyFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "cistern-key-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/cluster.key";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::binary) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  void ExpectRefused(const char* why) {
    const absl::StatusOr<ClusterKey> key = ClusterKey::Load(path_);
    EXPECT_EQ(key.status().code(), absl::StatusCode::kFailedPrecondition) << why;
    EXPECT_THAT(key.status().message(), HasSubstr(path_));
    EXPECT_THAT(key.status().message(), HasSubstr(why));
  }
  size_t Files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::string folder_, path_;
};

TEST_F(ClusterKeyFile, ComesBackAsItWasSavedAndIsForItsOwnerAlone) {
  const ClusterKey key = ClusterKey::Generate();
  ASSERT_TRUE(key.Save(path_).ok());
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(info.st_size, 65);
  EXPECT_EQ(Files(), 1u);
  const absl::StatusOr<ClusterKey> loaded = ClusterKey::Load(path_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->Derive("a", "b"), key.Derive("a", "b"));
}

TEST_F(ClusterKeyFile, IsNeverReplaced) {
  Write("something else");
  EXPECT_EQ(ClusterKey::Generate().Save(path_).code(), absl::StatusCode::kAlreadyExists);
  std::string text;
  std::getline(std::ifstream(path_), text);
  EXPECT_EQ(text, "something else");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(ClusterKeyFile, SaveNamesAFolderThatIsNotThere) {
  const absl::Status status = ClusterKey::Generate().Save(folder_ + "/no/cluster.key");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("/no/cluster.key"));
}

TEST_F(ClusterKeyFile, LoadRefusesWhatIsNoKeyAndSaysWhy) {
  ExpectRefused("No such file");
  const std::string digits(64, 'a');
  Write(digits + "\n", 0640);
  ExpectRefused("mode 640): chmod 600");
  Write(digits + "\n", 0604);
  ExpectRefused("mode 604): chmod 600");
  for (const std::string& text :
       {std::string(), digits.substr(1) + "\n", digits + "a\n", digits + "\n\n", digits + " ",
        "g" + digits.substr(1) + "\n", digits.substr(1) + "\n\n", std::string(64, '0').append("\n")}) {
    Write(text);
    ExpectRefused("not 64 hex digits and a newline; bring back");
  }
  Write(digits);  // An editor may have dropped the newline.
  EXPECT_TRUE(ClusterKey::Load(path_).ok());
}

TEST_F(ClusterKeyFile, LoadRefusesAFolderAndAPipeWithoutHanging) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  ExpectRefused("not a regular file");
  ASSERT_EQ(rmdir(path_.c_str()), 0);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ExpectRefused("not a regular file");
}

TEST(ClusterKey, DerivesOtherBytesForEveryLabelDataAndKey) {
  const ClusterKey key = ClusterKey::Generate();
  EXPECT_EQ(key.Derive("ab", "c"), key.Derive("ab", "c"));
  EXPECT_NE(key.Derive("ab", "c"), key.Derive("a", "bc"));
  EXPECT_NE(key.Derive("ab", ""), key.Derive("", "ab"));
  EXPECT_NE(key.Derive("ab", "c"), ClusterKey::Generate().Derive("ab", "c"));
}

TEST(ClusterKeyDeathTest, AnUnsetKeySignsNothing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(ClusterKey().Derive("a", "b"), "check failed");
}

ClusterId SomeCluster(uint8_t fill = 7) {
  ClusterId id;
  id.bytes.fill(fill);
  return id;
}

Ticket SomeTicket() {
  Ticket ticket;
  ticket.cluster = SomeCluster();
  ticket.tenant = "acme";
  ticket.name_space = "chat";
  ticket.rights = kRightRead | kRightWrite;
  ticket.expires_unix_s = kNow + 3600;
  ticket.nonce = 0x0123456789abcdef;
  return ticket;
}

// `body` with a valid signature: what only the cluster itself can make.
std::string Sign(std::string body, const ClusterKey& key) {
  const auto mac = key.Derive("cistern/ticket/1", body);
  return body.append(reinterpret_cast<const char*>(mac.data()), mac.size());
}

class TicketTest : public ::testing::Test {
 protected:
  void ExpectRefused(const std::string& sealed, absl::StatusCode code, const char* why, int64_t now = kNow) {
    const absl::StatusOr<Ticket> ticket = OpenTicket(sealed, key_, SomeCluster(), now);
    EXPECT_EQ(ticket.status().code(), code) << why << ": " << ticket.status();
    EXPECT_THAT(ticket.status().message(), HasSubstr(why));
  }
  const ClusterKey key_ = ClusterKey::Generate();
  const std::string sealed_ = SealTicket(SomeTicket(), key_);
};

TEST_F(TicketTest, OpensAsItWasSealed) {
  const absl::StatusOr<Ticket> ticket = OpenTicket(sealed_, key_, SomeCluster(), kNow);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  EXPECT_EQ(ticket->cluster, SomeCluster());
  EXPECT_EQ(ticket->tenant, "acme");
  EXPECT_EQ(ticket->name_space, "chat");
  EXPECT_EQ(ticket->rights, kRightRead | kRightWrite);
  EXPECT_EQ(ticket->expires_unix_s, kNow + 3600);
  EXPECT_EQ(ticket->nonce, 0x0123456789abcdefu);
}

TEST_F(TicketTest, FitsItsBoundWithTheLongestNamesAndLongerOnesGiveNone) {
  Ticket ticket = SomeTicket();
  ticket.tenant.assign(kTicketNameBytesMax, 't');
  ticket.name_space.assign(kTicketNameBytesMax, 'n');
  const std::string sealed = SealTicket(ticket, key_);
  EXPECT_LE(sealed.size(), kTicketBytesMax);
  EXPECT_TRUE(OpenTicket(sealed, key_, SomeCluster(), kNow).ok());
  ticket.tenant += 't';
  EXPECT_EQ(SealTicket(ticket, key_), "");
}

TEST_F(TicketTest, RefusesEveryFlippedBitAndEveryCut) {
  for (size_t bit = 0; bit < sealed_.size() * 8; ++bit) {
    std::string bad = sealed_;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(OpenTicket(bad, key_, SomeCluster(), kNow).ok()) << "bit " << bit;
  }
  for (size_t bytes = 0; bytes < sealed_.size(); ++bytes) {
    ASSERT_FALSE(OpenTicket(sealed_.substr(0, bytes), key_, SomeCluster(), kNow).ok()) << bytes;
  }
  ExpectRefused("", absl::StatusCode::kInvalidArgument, "cut off");
  ExpectRefused(sealed_ + "x", absl::StatusCode::kPermissionDenied, "not signed");
  ExpectRefused(std::string(kTicketBytesMax + 1, 'x'), absl::StatusCode::kInvalidArgument, "above 512");
}

TEST_F(TicketTest, RefusesAnotherKeyAndAnotherCluster) {
  EXPECT_EQ(OpenTicket(sealed_, ClusterKey::Generate(), SomeCluster(), kNow).status().code(),
            absl::StatusCode::kPermissionDenied);
  const absl::Status other = OpenTicket(sealed_, key_, SomeCluster(8), kNow).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(other.message(), HasSubstr(ToHex(SomeCluster())));
}

TEST_F(TicketTest, EndsAtItsExpiryPlusTheAllowedSkew) {
  const int64_t last = kNow + 3600 + kTicketSkewSeconds;
  EXPECT_TRUE(OpenTicket(sealed_, key_, SomeCluster(), last).ok());
  ExpectRefused(sealed_, absl::StatusCode::kPermissionDenied, "expired", last + 1);
  Ticket ticket = SomeTicket();
  ticket.expires_unix_s = std::numeric_limits<int64_t>::min();
  ExpectRefused(SealTicket(ticket, key_), absl::StatusCode::kPermissionDenied, "expired");
  ticket.expires_unix_s = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(OpenTicket(SealTicket(ticket, key_), key_, SomeCluster(), kNow).ok());
}

TEST_F(TicketTest, RefusesSignedNonsenseByName) {
  const std::string body = sealed_.substr(0, sealed_.size() - 32);
  EXPECT_EQ(Sign(body, key_), sealed_);
  std::string bad = body;
  bad[0] = 2;
  ExpectRefused(Sign(bad, key_), absl::StatusCode::kInvalidArgument, "version 2");
  ExpectRefused(Sign(body + "x", key_), absl::StatusCode::kInvalidArgument, "behind the namespace");
  ExpectRefused(Sign(body.substr(0, body.size() - 1), key_), absl::StatusCode::kInvalidArgument,
                "namespace is cut");
  bad = body;
  bad[37] = static_cast<char>(200);
  ExpectRefused(Sign(bad, key_), absl::StatusCode::kInvalidArgument, "tenant is cut");
  bad = body.substr(0, 38);
  bad[37] = 0;
  ExpectRefused(Sign(bad + "?", key_), absl::StatusCode::kInvalidArgument, "namespace is cut");
}

}  // namespace
}  // namespace cistern
