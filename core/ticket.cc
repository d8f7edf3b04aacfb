#include "core/ticket.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/bytes.h"
#include "core/check.h"

namespace cistern {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kKeyFileBytes = 2 * kKeyBytes + 1;  // Hex digits and a newline.
constexpr size_t kMacBytes = 32;
constexpr char kMacLabel[] = "cistern/ticket/1";
constexpr uint8_t kTicketVersion = 1;
// version, cluster, rights, expiry, nonce; then two names, each with a length byte.
constexpr size_t kFixedBytes = 1 + 16 + 4 + 8 + 8;
constexpr size_t kNameBytesMax = 128;
static_assert(kFixedBytes + 2 * (1 + kNameBytesMax) + kMacBytes <= kTicketBytesMax);
static_assert(kNameBytesMax == kTicketNameBytesMax);

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string Why(const char* what, const std::string& path) {
  return absl::StrCat("cluster key: cannot ", what, " ", path, ": ", std::strerror(errno));
}

// Reads up to `bytes`; -1 on an error.
ssize_t ReadUpTo(int fd, char* to, size_t bytes) {
  size_t got = 0;
  while (got < bytes) {
    const ssize_t n = read(fd, to + got, bytes - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(got);
}

bool WriteAll(int fd, const char* from, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = write(fd, from, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    from += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

std::optional<uint8_t> HexDigit(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint8_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<uint8_t>(c - 'A' + 10);
  return std::nullopt;
}

template <typename T>
void PutInt(std::string& out, T value) {
  char raw[sizeof(T)];
  StoreLe(raw, value);
  out.append(raw, sizeof(T));
}

void PutName(std::string& out, const std::string& name) {
  out.push_back(static_cast<char>(static_cast<uint8_t>(name.size())));
  out.append(name);
}

// Takes `name` off the front of `rest`.
bool TakeName(std::string_view& rest, std::string& name) {
  if (rest.empty()) return false;
  const auto bytes = static_cast<uint8_t>(rest[0]);
  if (bytes > kNameBytesMax || rest.size() - 1 < bytes) return false;
  name.assign(rest.substr(1, bytes));
  rest.remove_prefix(size_t{1} + bytes);
  return true;
}

absl::StatusOr<Ticket> Decode(std::string_view body) {
  const auto version = static_cast<uint8_t>(body[0]);
  if (version != kTicketVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("ticket: version ", version, ", this build reads version ", kTicketVersion));
  }
  Ticket ticket;
  const char* at = body.data() + 1;
  std::memcpy(ticket.cluster.bytes.data(), at, ticket.cluster.bytes.size());
  at += ticket.cluster.bytes.size();
  ticket.rights = LoadLe<uint32_t>(at);
  ticket.expires_unix_s = LoadLe<int64_t>(at + 4);
  ticket.nonce = LoadLe<uint64_t>(at + 12);
  std::string_view rest = body.substr(kFixedBytes);
  if (!TakeName(rest, ticket.tenant))
    return absl::InvalidArgumentError("ticket: tenant is cut off or too long");
  if (!TakeName(rest, ticket.name_space)) {
    return absl::InvalidArgumentError("ticket: namespace is cut off or too long");
  }
  if (!rest.empty()) return absl::InvalidArgumentError("ticket: bytes behind the namespace");
  return ticket;
}

}  // namespace

ClusterKey::~ClusterKey() { OPENSSL_cleanse(key_.data(), key_.size()); }

bool ClusterKey::IsSet() const { return key_ != std::array<uint8_t, 32>{}; }

ClusterKey ClusterKey::Generate() {
  ClusterKey key;
  CISTERN_CHECK(RAND_bytes(key.key_.data(), static_cast<int>(key.key_.size())) == 1);
  return key;
}

absl::StatusOr<ClusterKey> ClusterKey::Load(const std::string& path) {
  // Non-blocking, so that a FIFO in the file's place is an error below and not a hang.
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    const bool missing = errno == ENOENT;
    return absl::FailedPreconditionError(absl::StrCat(
        Why("open", path),
        missing ? "; give the file that the cluster's router has (a new cluster's: openssl rand -hex 32)"
                : "; be the user whose key it is"));
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return absl::FailedPreconditionError(Why("stat", path));
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("cluster key: ", path, " is not a regular file"));
  }
  if ((info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cluster key: ", path, " is open to others (mode ", absl::Hex((info.st_mode >> 6) & 7),
                     absl::Hex((info.st_mode >> 3) & 7), absl::Hex(info.st_mode & 7), "): chmod 600 ", path));
  }
  char text[kKeyFileBytes + 1];
  const ssize_t got = ReadUpTo(fd.get(), text, sizeof(text));
  if (got < 0) return absl::FailedPreconditionError(Why("read", path));
  const bool whole = got == kKeyFileBytes && text[kKeyFileBytes - 1] == '\n';
  ClusterKey key;
  bool valid = whole || got == kKeyFileBytes - 1;
  for (size_t i = 0; valid && i < kKeyBytes; ++i) {
    const std::optional<uint8_t> high = HexDigit(text[2 * i]);
    const std::optional<uint8_t> low = HexDigit(text[2 * i + 1]);
    valid = high && low;
    if (valid) key.key_[i] = static_cast<uint8_t>(*high << 4 | *low);
  }
  OPENSSL_cleanse(text, sizeof(text));
  if (!valid || !key.IsSet()) {
    return absl::FailedPreconditionError(absl::StrCat("cluster key: ", path,
                                                      " is not 64 hex digits and a newline; bring back the "
                                                      "cluster's key from another host or a copy (a new "
                                                      "cluster's: openssl rand -hex 32)"));
  }
  return key;
}

absl::Status ClusterKey::Save(const std::string& path) const {
  CISTERN_CHECK(IsSet());
  // Written whole under another name and then linked: a crash leaves no half key, and link() refuses to
  // replace one.
  std::string temporary = path + ".XXXXXX";
  const Fd fd(mkostemp(temporary.data(), O_CLOEXEC));  // Creates with mode 0600 and O_EXCL.
  if (fd.get() < 0) return absl::FailedPreconditionError(Why("create", temporary));
  std::string text = ToHex(key_.data(), key_.size()) + "\n";
  absl::Status status;
  if (!WriteAll(fd.get(), text.data(), text.size()) || fsync(fd.get()) != 0) {
    status = absl::FailedPreconditionError(Why("write", temporary));
  } else if (link(temporary.c_str(), path.c_str()) != 0) {
    status = errno == EEXIST ? absl::AlreadyExistsError(absl::StrCat("cluster key: ", path, " exists"))
                             : absl::FailedPreconditionError(Why("create", path));
  }
  OPENSSL_cleanse(text.data(), text.size());
  unlink(temporary.c_str());
  return status;
}

std::array<uint8_t, 32> ClusterKey::Derive(std::string_view label, std::string_view data) const {
  CISTERN_CHECK(IsSet());
  // The label's length goes first, so no byte can wander between label and data.
  std::string message;
  message.reserve(sizeof(uint32_t) + label.size() + data.size());
  PutInt(message, static_cast<uint32_t>(label.size()));
  message.append(label).append(data);
  std::array<uint8_t, 32> out;
  unsigned int bytes = 0;
  CISTERN_CHECK(HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
                     reinterpret_cast<const unsigned char*>(message.data()), message.size(), out.data(),
                     &bytes) != nullptr);
  CISTERN_CHECK(bytes == out.size());
  return out;
}

std::string SealTicket(const Ticket& ticket, const ClusterKey& key) {
  if (ticket.tenant.size() > kNameBytesMax || ticket.name_space.size() > kNameBytesMax) return {};
  std::string out;
  out.reserve(kTicketBytesMax);
  out.push_back(static_cast<char>(kTicketVersion));
  out.append(reinterpret_cast<const char*>(ticket.cluster.bytes.data()), ticket.cluster.bytes.size());
  PutInt(out, ticket.rights);
  PutInt(out, ticket.expires_unix_s);
  PutInt(out, ticket.nonce);
  PutName(out, ticket.tenant);
  PutName(out, ticket.name_space);
  const std::array<uint8_t, 32> mac = key.Derive(kMacLabel, out);
  out.append(reinterpret_cast<const char*>(mac.data()), mac.size());
  return out;
}

absl::StatusOr<Ticket> OpenTicket(std::string_view sealed, const ClusterKey& key, const ClusterId& cluster,
                                  int64_t now_unix_s) {
  if (sealed.size() > kTicketBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("ticket: ", sealed.size(), " bytes, above ", kTicketBytesMax));
  }
  if (sealed.size() < kFixedBytes + 2 + kMacBytes) return absl::InvalidArgumentError("ticket: cut off");
  const std::string_view body = sealed.substr(0, sealed.size() - kMacBytes);
  const std::array<uint8_t, 32> mac = key.Derive(kMacLabel, body);
  // Nothing of the body is looked at before this; the time of the comparison tells nothing about the MAC
  // (S10).
  if (CRYPTO_memcmp(mac.data(), sealed.data() + body.size(), kMacBytes) != 0) {
    return absl::PermissionDeniedError("ticket: not signed with this cluster's key");
  }
  absl::StatusOr<Ticket> ticket = Decode(body);
  if (!ticket.ok()) return ticket;
  if (ticket->cluster != cluster) {
    return absl::PermissionDeniedError(
        absl::StrCat("ticket: of cluster ", ToHex(ticket->cluster), ", this is ", ToHex(cluster)));
  }
  // Subtracting from `now` cannot overflow for any clock a machine has; the ticket's own figure may be
  // anything.
  if (ticket->expires_unix_s < now_unix_s - kTicketSkewSeconds) {
    return absl::PermissionDeniedError(
        absl::StrCat("ticket: expired ", ticket->expires_unix_s, ", now ", now_unix_s, " (unix seconds)"));
  }
  return ticket;
}

}  // namespace cistern
