#include "transport/ucx/registrations.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/status_macros.h"

namespace cistern {

size_t LockedMemoryLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return limit.rlim_cur;
}

absl::StatusOr<RegionPlan> PlanRegion(const std::byte* data, size_t bytes, size_t page_bytes, size_t grain,
                                      const RegistrationLimits& limits) {
  if (bytes == 0) return absl::InvalidArgumentError("a region of no bytes");
  if (reinterpret_cast<uintptr_t>(data) % page_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the region does not begin on a page of ", page_bytes));
  }
  const size_t step = std::max(grain, page_bytes);
  if (step % page_bytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a slab of ", grain, " bytes is not whole pages of ", page_bytes));
  }
  if (bytes <= limits.chunk_bytes_max) return RegionPlan{bytes, 1};
  const size_t chunk = limits.chunk_bytes_max / step * step;
  if (chunk == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a slab of ", step, " bytes is more than one registration takes (", limits.chunk_bytes_max, ")"));
  }
  return RegionPlan{chunk, static_cast<uint32_t>((bytes + chunk - 1) / chunk)};
}

const Registration::Chunk* Registration::Find(const std::byte* at, size_t n) const {
  const auto offset = static_cast<size_t>(at - data);
  const Chunk& chunk = chunks[offset / chunk_bytes];
  return n <= chunk.bytes - static_cast<size_t>(at - chunk.data) ? &chunk : nullptr;
}

Registrations::~Registrations() {
  for (const auto& registration : all_) Undo(*registration);
}

void Registrations::Undo(Registration& registration) {
  for (const Registration::Chunk& chunk : registration.chunks) {
    registrar_.Unregister(chunk.handle);
    bytes_ -= chunk.bytes;
    --chunks_;
  }
  registration.chunks.clear();
}

absl::StatusOr<const Registration*> Registrations::Add(std::byte* data, size_t bytes, size_t grain) {
  const auto after = std::upper_bound(all_.begin(), all_.end(), data,
                                      [](const std::byte* at, const auto& r) { return at < r->data; });
  if (after != all_.begin()) {
    Registration& before = **std::prev(after);
    if (before.data == data && before.bytes == bytes) {
      ++before.users;
      return &before;
    }
    if (data < before.data + before.bytes)
      return absl::InvalidArgumentError("the region overlaps one that is registered");
  }
  if (after != all_.end() && (*after)->data < data + bytes)
    return absl::InvalidArgumentError("the region overlaps one that is registered");
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  CISTERN_ASSIGN_OR_RETURN(const RegionPlan plan, PlanRegion(data, bytes, page, grain, limits_));
  if (bytes > limits_.total_bytes_max - bytes_ || plan.chunks > limits_.chunks_max - chunks_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("registering ", bytes, " bytes in ", plan.chunks, " regions on top of ", bytes_, " in ",
                     chunks_, ": at most ", limits_.total_bytes_max, " in ", limits_.chunks_max));
  }
  auto registration = std::make_unique<Registration>();
  registration->data = data;
  registration->bytes = bytes;
  registration->chunk_bytes = plan.chunk_bytes;
  registration->users = 1;
  for (size_t at = 0; at < bytes; at += plan.chunk_bytes) {
    const size_t n = std::min(plan.chunk_bytes, bytes - at);
    const absl::StatusOr<void*> handle = registrar_.Register(data + at, n);
    if (!handle.ok()) {
      const std::string done = absl::StrCat(at, " of ", bytes, " bytes");
      Undo(*registration);
      const size_t limit = LockedMemoryLimit();
      return absl::Status(
          handle.status().code(),
          absl::StrCat("registering memory stopped after ", done, ": ", handle.status().message(),
                       limit == SIZE_MAX ? std::string("; the lock limit (ulimit -l) is unlimited")
                                         : absl::StrCat("; the lock limit (ulimit -l) is ", limit >> 10,
                                                        " KiB: raise it above what is registered")));
    }
    registration->chunks.push_back({data + at, n, *handle});
    bytes_ += n;
    ++chunks_;
  }
  return all_.insert(after, std::move(registration))->get();
}

void Registrations::Remove(const std::byte* data) {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [&](const auto& registration) { return registration->data == data; });
  CISTERN_CHECK(found != all_.end());
  if (--(*found)->users > 0) return;
  Undo(**found);
  all_.erase(found);
}

const Registration* Registrations::Find(const std::byte* at, size_t n) const {
  const auto after = std::upper_bound(all_.begin(), all_.end(), at,
                                      [](const std::byte* a, const auto& r) { return a < r->data; });
  if (after == all_.begin()) return nullptr;
  const Registration& before = **std::prev(after);
  const auto offset = static_cast<size_t>(at - before.data);
  return offset < before.bytes && n <= before.bytes - offset ? &before : nullptr;
}

}  // namespace cistern
