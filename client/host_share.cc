#include "client/host_share.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/crc32c.h"

namespace cistern {
namespace {

// A slot's word: phase in 2 bits, milliseconds in 30, tag in 32. All zero, as in a new file, is an empty
// slot.
enum Phase : uint64_t { kEmpty = 0, kComing = 1, kThere = 2 };
constexpr uint64_t kTimeMask = (uint64_t{1} << 30) - 1;

uint64_t TimeOf(Nanos now) { return static_cast<uint64_t>(now / kMillisecond) & kTimeMask; }
uint64_t Word(Phase phase, Nanos now, uint32_t tag) {
  return uint64_t{tag} << 32 | TimeOf(now) << 2 | static_cast<uint64_t>(phase);
}
Phase PhaseOf(uint64_t word) { return static_cast<Phase>(word & 3); }
uint32_t TagOf(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
Nanos AgeOf(uint64_t word, Nanos now) {
  const uint64_t age = (TimeOf(now) - (word >> 2)) & kTimeMask;
  // Another process's clock may be read a moment later than ours was.
  return age > kTimeMask / 2 ? 0 : static_cast<Nanos>(age) * kMillisecond;
}

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr char kPrefix[] = "cistern-share-1-";
constexpr int kOpenTries = 16;  // Each loses against a last user that leaves just then.

std::string OfUser() { return absl::StrCat(kPrefix, geteuid(), "-"); }

}  // namespace

struct alignas(64) HostShare::Slot {
  std::atomic<uint64_t> word;
  alignas(64) SlotTrailer trailer;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct HostShare::Area {
  std::string path{};
  uint32_t part_bytes = 0;
  uint32_t slots = 0;
  size_t slot_bytes = 0, total_bytes = 0;
  int fd = -1;                  // Not negative: locked by us.
  std::byte* memory = nullptr;  // Slot heads, then their bytes. Null: could not be had.

  Slot& slot(uint32_t i) const { return reinterpret_cast<Slot*>(memory)[i]; }
  std::byte* bytes(uint32_t i) const { return memory + slots * sizeof(Slot) + i * slot_bytes; }
};

HostShare::HostShare(std::string name, size_t bytes, std::string folder)
    : folder_(std::move(folder)), name_(std::move(name)), bytes_(std::min(bytes, kShareBytesMax)) {
  RemoveStale();
}

HostShare::~HostShare() {
  for (const auto& area : segments_) {
    if (area->memory != nullptr) munmap(area->memory, area->total_bytes);
    if (area->fd < 0) continue;
    // Whoever opened it before it was removed sees that it has no name any more, and makes another.
    if (flock(area->fd, LOCK_EX | LOCK_NB) == 0) unlink(area->path.c_str());
    close(area->fd);
  }
}

void HostShare::RemoveStale() const {
  DIR* folder = opendir(folder_.c_str());
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    if (!absl::StartsWith(entry->d_name, OfUser())) continue;
    const int fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(dirfd(folder), entry->d_name, 0);
    close(fd);
  }
  closedir(folder);
}

// Under a lock on a file that has its name still.
bool HostShare::Open(Area& area) {
  const auto failed = [&](const char* what, int error) {
    ++failures_;
    why_ = absl::StrCat(area.path, ": ", what, ": ", std::strerror(error));
    return false;
  };
  for (int i = 0; i < kOpenTries && area.fd < 0; ++i) {
    const int fd = open(area.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat info {};
    if (fd < 0) return failed("open", errno);
    if (flock(fd, LOCK_SH | LOCK_NB) != 0 || fstat(fd, &info) != 0 || info.st_nlink == 0) {
      close(fd);
      continue;
    }
    if (info.st_uid != geteuid()) {
      close(fd);
      return failed("owner", EPERM);
    }
    area.fd = fd;
  }
  if (area.fd < 0) return failed("lock", EBUSY);
  // All of it now: a page that cannot be had later on would be a signal.
  if (const int error = posix_fallocate(area.fd, 0, static_cast<off_t>(area.total_bytes)); error != 0)
    return failed("no memory for it", error);
  void* memory = mmap(nullptr, area.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, area.fd, 0);
  if (memory == MAP_FAILED) return failed("mmap", errno);
  area.memory = static_cast<std::byte*>(memory);
  return true;
}

HostShare::Area* HostShare::SegmentOf(uint32_t part_bytes, uint32_t& index) {
  for (index = 0; index < segments_.size(); ++index) {
    Area* area = segments_[index].get();
    if (area->part_bytes == part_bytes) return area->memory != nullptr ? area : nullptr;
  }
  if (segments_.size() == kShareSizesMax || part_bytes == 0) return nullptr;
  auto area = std::make_unique<Area>();
  area->part_bytes = part_bytes;
  area->slot_bytes = (size_t{part_bytes} + 63) / 64 * 64;
  area->slots =
      static_cast<uint32_t>(std::min<size_t>(bytes_ / (area->slot_bytes + sizeof(Slot)), kShareSlotsMax));
  area->total_bytes = area->slots * (area->slot_bytes + sizeof(Slot));
  uint64_t name = 14695981039346656037u;
  for (const char c : name_) name = (name ^ static_cast<uint8_t>(c)) * 1099511628211u;
  area->path = absl::StrCat(folder_, "/", OfUser(), absl::Hex(Mix(name), absl::kZeroPad16), "-", part_bytes,
                            "-", area->slots);
  if (area->slots == 0) {
    ++failures_;
    why_ = absl::StrCat(bytes_, " bytes are less than a part of ", part_bytes);
  } else {
    (void)Open(*area);
  }
  segments_.push_back(std::move(area));  // Also one that failed: it is not tried again.
  return segments_.back()->memory != nullptr ? segments_.back().get() : nullptr;
}

HostShare::Claimed HostShare::Claim(const BlockKey& block, PartCoord coord, uint32_t bytes, Nanos now,
                                    Place& place) {
  Area* area = SegmentOf(bytes, place.segment);
  if (area == nullptr) return Claimed::kFull;
  const uint64_t key = Mix(block.hash.Prefix64() ^ Mix(block.fingerprint ^ coord.Packed()));
  const auto tag = static_cast<uint32_t>(key >> 32);
  const uint32_t ways = std::min(kShareWays, area->slots);
  const auto at = [&](uint32_t way) { return static_cast<uint32_t>((key + way) % area->slots); };
  // All look at the same slots in the same order, so that two who come at once meet at one of them.
  for (uint32_t tries = 0; tries < 2 * kShareWays; ++tries) {
    uint32_t victim = UINT32_MAX;
    uint64_t old = 0;
    Nanos oldest = -1;
    for (uint32_t way = 0; way < ways; ++way) {
      const uint64_t word = area->slot(at(way)).word.load(std::memory_order_acquire);
      const Phase phase = PhaseOf(word);
      const Nanos age = phase == kEmpty ? INT64_MAX : AgeOf(word, now);
      const bool dead = phase == kComing && age > kShareClaimMax;
      if (phase != kEmpty && TagOf(word) == tag && !dead) {
        place.slot = at(way);
        place.word = word;
        return Claimed::kOthers;
      }
      const bool free = phase == kEmpty || dead || (phase == kThere && age > kShareKeepMin);
      if (!free || age <= oldest) continue;
      victim = at(way);
      old = word;
      oldest = age;
    }
    if (victim == UINT32_MAX) return Claimed::kFull;
    const uint64_t mine = Word(kComing, now, tag);
    if (area->slot(victim).word.compare_exchange_strong(old, mine, std::memory_order_acq_rel)) {
      place.slot = victim;
      place.word = mine;
      return Claimed::kMine;
    }
  }
  return Claimed::kFull;
}

void HostShare::Publish(const Place& place, const SlotTrailer& trailer, absl::Span<const Segment> bytes,
                        Nanos now) {
  const Area& area = *segments_[place.segment];
  Slot& slot = area.slot(place.slot);
  if (slot.word.load(std::memory_order_acquire) != place.word) return;  // Taken for that of somebody dead.
  std::byte* to = area.bytes(place.slot);
  for (const Segment& segment : bytes) {
    std::memcpy(to, segment.data, segment.bytes);
    to += segment.bytes;
  }
  slot.trailer = trailer;
  uint64_t word = place.word;
  slot.word.compare_exchange_strong(word, Word(kThere, now, TagOf(word)), std::memory_order_release);
}

void HostShare::Drop(const Place& place) {
  uint64_t word = place.word;
  segments_[place.segment]->slot(place.slot).word.compare_exchange_strong(word, 0, std::memory_order_release);
}

HostShare::State HostShare::Look(Place& place) const {
  const uint64_t word = segments_[place.segment]->slot(place.slot).word.load(std::memory_order_acquire);
  if (PhaseOf(word) == kEmpty || TagOf(word) != TagOf(place.word)) return State::kGone;
  place.word = word;
  return PhaseOf(word) == kThere ? State::kThere : State::kComing;
}

PullResult HostShare::Take(const Place& place, absl::Span<const Segment> target) const {
  const Area& area = *segments_[place.segment];
  const std::byte* from = area.bytes(place.slot);
  PullResult result;
  for (const Segment& segment : target) {
    result.crc = CopyCrc32c(segment.data, from, segment.bytes, result.crc);
    from += segment.bytes;
  }
  std::memcpy(&result.trailer, &area.slot(place.slot).trailer, sizeof(result.trailer));
  std::atomic_thread_fence(std::memory_order_acquire);
  if (area.slot(place.slot).word.load(std::memory_order_relaxed) != place.word)
    result.result = PartResult::kStale;
  return result;
}

}  // namespace cistern
