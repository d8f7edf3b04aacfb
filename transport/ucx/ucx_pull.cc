#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "transport/ucx/ucx_transport.h"

// One-sided reads. A pull is cut into fragments: where its target is registered the device writes there, else
// into a bounce buffer that is then copied and checksummed in one pass. The trailer is read last, after every
// byte is here, so that an unchanged generation vouches for all of them.
namespace cistern {
namespace {

// offset + bytes may not wrap: everything is compared by subtraction in 64 bits (F36).
bool IsInside(const RemoteRegion& region, uint64_t offset, uint64_t bytes) {
  return bytes <= region.bytes && offset <= region.bytes - bytes;
}

}  // namespace

const RemoteChunk& RemoteRegion::At(uint64_t offset) const {
  const auto after = std::upper_bound(chunks.begin(), chunks.end(), offset,
                                      [](uint64_t o, const RemoteChunk& chunk) { return o < chunk.offset; });
  return *std::prev(after);
}

absl::Status UcxTransport::Pull(PeerId id, const PullRequest& request) {
  Inside inside(*this);
  UcxPeer* peer = Find(id);
  if (peer == nullptr || peer->state != State::kUp || peer->doomed)
    return absl::UnavailableError(absl::StrCat("peer ", id, " is not up"));
  if (!peer->path.one_sided) return absl::FailedPreconditionError("this path has no one-sided reads");
  const RemoteRegion* region = nullptr;
  for (const RemoteRegion& candidate : peer->regions) {
    if (candidate.id == request.region) region = &candidate;
  }
  uint64_t room = 0;
  for (const Segment& segment : request.target) room += segment.bytes;
  const bool trailer_fits = request.trailer_offset == 0 ||
                            (region != nullptr && request.trailer_offset % alignof(SlotTrailer) == 0 &&
                             IsInside(*region, request.trailer_offset, sizeof(SlotTrailer)) &&
                             region->At(request.trailer_offset).offset ==
                                 region->At(request.trailer_offset + sizeof(SlotTrailer) - 1).offset);
  if (region == nullptr || !IsInside(*region, request.offset, request.bytes) || !trailer_fits ||
      room != request.bytes) {
    handler_->OnPulled(id, request.pull_id, PullResult{.result = PartResult::kInvalid});
    return absl::OkStatus();
  }
  if (pull_pool_.in_use() >= kUcxPullsMax)
    return absl::ResourceExhaustedError("kUcxPullsMax reads are under way");
  PullOp& pull = *pull_pool_.Take();
  pull.transport = this;
  pull.peer = peer;
  pull.pull_id = request.pull_id;
  pull.region = region;
  pull.trailer_offset = request.trailer_offset;
  pull.target.assign(request.target.begin(), request.target.end());
  pull.segment = pull.segment_at = 0;
  pull.next_post = pull.next_land = 0;
  pull.in_flight = pull.direct_in_flight = 0;
  pull.failed = pull.listed = false;
  pull.trailer = nullptr;
  pull.trailer_posted = pull.trailer_done = false;
  pull.crc = 0;
  PlanFragments(pull, request.offset);
  peer->pulls.push_back(&pull);
  PostFragments(pull);
  if (pull.in_flight == 0) WantAdvance(pull);  // Ended already, or waits for a buffer.
  return absl::OkStatus();
}

// Cuts at the borders of the region's registrations, of registered targets, and of a bounce buffer.
void UcxTransport::PlanFragments(PullOp& pull, uint64_t offset) {
  pull.fragments.clear();
  Fragment bounce;
  const auto close_bounce = [&] {
    if (bounce.bytes > 0) pull.fragments.push_back(bounce);
    bounce = Fragment{};
  };
  for (const Segment& segment : pull.target) {
    const bool direct = segment.bytes >= kDirectFragmentBytesMin &&
                        registrations_.Find(segment.data, segment.bytes) != nullptr;
    for (size_t at = 0; at < segment.bytes;) {
      const RemoteChunk& chunk = pull.region->At(offset);
      size_t take = std::min<uint64_t>(segment.bytes - at, chunk.offset + chunk.bytes - offset);
      if (direct) {
        close_bounce();
        pull.fragments.push_back({&pull, offset, take, segment.data + at, true, false, false});
      } else {
        if (bounce.bytes == kBounceBytes || (bounce.bytes > 0 && chunk.offset > bounce.offset))
          close_bounce();
        if (bounce.bytes == 0) bounce = {&pull, offset, 0, nullptr, false, false, false};
        take = std::min(take, kBounceBytes - bounce.bytes);
        bounce.bytes += take;
      }
      at += take;
      offset += take;
    }
  }
  close_bounce();
}

void UcxTransport::PostFragments(PullOp& pull) {
  while (pull.next_post < pull.fragments.size() && !pull.failed && pull.peer != nullptr) {
    Fragment& fragment = pull.fragments[pull.next_post];
    if (!fragment.direct) {
      fragment.to = bounce_->Take();
      if (fragment.to == nullptr) {
        ++counters_.bounce_waits;
        pulls_waiting_.push_back(&pull);
        return;
      }
    }
    ++pull.next_post;
    fragment.posted = true;
    ++counters_.gets;
    counters_.get_bytes += fragment.bytes;
    if (fragment.direct) {
      counters_.direct_get_bytes += fragment.bytes;
      ++pull.direct_in_flight;
    }
    if (GetInto(pull, fragment.offset, fragment.bytes, fragment.to, &fragment, OnGot)) {
      fragment.done = true;
      if (fragment.direct) --pull.direct_in_flight;
    }
  }
}

void UcxTransport::PostTrailer(PullOp& pull) {
  pull.trailer = bounce_->TakeSmall();
  CISTERN_CHECK(pull.trailer != nullptr);  // There are more than kUcxPullsMax.
  pull.trailer_posted = true;
  pull.trailer_done = GetInto(pull, pull.trailer_offset, sizeof(SlotTrailer), pull.trailer, &pull, OnTrailer);
}

// True: ended at once (perhaps badly: pull.failed). Else the callback tells.
bool UcxTransport::GetInto(PullOp& pull, uint64_t offset, size_t bytes, std::byte* to, void* user_data,
                           ucp_send_nbx_callback_t callback) {
  const RemoteChunk& chunk = pull.region->At(offset);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = callback;
  params.user_data = user_data;
  ++pull.in_flight;
  ucs_status_ptr_t request = ucp_get_nbx(pull.peer->ep, to, bytes, chunk.address + (offset - chunk.offset),
                                         chunk.rkey.get(), &params);
  if (UCS_PTR_IS_PTR(request)) return false;
  --pull.in_flight;
  if (UCS_PTR_RAW_STATUS(request) != UCS_OK) pull.failed = true;
  return true;
}

void UcxTransport::OnGot(void* request, ucs_status_t status, void* fragment) noexcept {
  auto& got = *static_cast<Fragment*>(fragment);
  ucp_request_free(request);
  PullOp& pull = *got.pull;
  --pull.in_flight;
  if (got.direct) --pull.direct_in_flight;
  got.done = true;
  if (status != UCS_OK) pull.failed = true;
  pull.transport->WantAdvance(pull);
}

void UcxTransport::OnTrailer(void* request, ucs_status_t status, void* pull) noexcept {
  auto& ended = *static_cast<PullOp*>(pull);
  ucp_request_free(request);
  --ended.in_flight;
  ended.trailer_done = true;
  if (status != UCS_OK) ended.failed = true;
  ended.transport->WantAdvance(ended);
}

void UcxTransport::WantAdvance(PullOp& pull) {
  if (pull.listed) return;
  pull.listed = true;
  pulls_due_.push_back(&pull);
  Wake();
}

bool UcxTransport::AdvancePulls() {
  const bool any = !pulls_due_.empty();
  // What callbacks begin meanwhile is for the next Poll.
  const size_t due = pulls_due_.size();
  for (size_t i = 0; i < due; ++i) {
    PullOp* pull = pulls_due_[i];
    pull->listed = false;
    AdvancePull(*pull);
  }
  pulls_due_.erase(pulls_due_.begin(), pulls_due_.begin() + static_cast<ptrdiff_t>(due));
  for (size_t i = pulls_waiting_.size(); i > 0 && !pulls_waiting_.empty() && bounce_->free() > 0; --i) {
    PullOp* pull = pulls_waiting_.front();
    pulls_waiting_.pop_front();
    PostFragments(*pull);
    if (pull->in_flight == 0) WantAdvance(*pull);
  }
  return any;
}

void UcxTransport::AdvancePull(PullOp& pull) {
  if (pull.peer == nullptr || pull.failed) {
    if (pull.in_flight > 0) return;  // The last callback brings us here again.
    if (pull.peer != nullptr) return EndPull(pull, PullResult{.result = PartResult::kPeerGone});
    return FreePull(pull);
  }
  while (pull.next_land < pull.next_post && pull.fragments[pull.next_land].done) {
    LandFragment(pull, pull.fragments[pull.next_land++]);
  }
  if (pull.next_land < pull.fragments.size()) return;
  if (pull.trailer_offset != 0 && !pull.trailer_posted) PostTrailer(pull);
  if (pull.failed) return AdvancePull(pull);
  if (pull.trailer_offset != 0 && !pull.trailer_done) return;
  PullResult result;
  result.crc = pull.crc;
  if (pull.trailer != nullptr) std::memcpy(&result.trailer, pull.trailer, sizeof(result.trailer));
  EndPull(pull, result);
}

void UcxTransport::LandFragment(PullOp& pull, Fragment& fragment) {
  std::atomic_thread_fence(std::memory_order_acquire);
  const std::byte* from = fragment.to;
  for (size_t left = fragment.bytes; left > 0;) {
    const Segment& segment = pull.target[pull.segment];
    const size_t take = std::min(left, segment.bytes - pull.segment_at);
    std::byte* to = segment.data + pull.segment_at;
    if (take > 0)
      pull.crc = fragment.direct ? Crc32cExtend(pull.crc, to, take) : CopyCrc32c(to, from, take, pull.crc);
    from += take;
    left -= take;
    pull.segment_at += take;
    if (pull.segment_at == segment.bytes) {
      ++pull.segment;
      pull.segment_at = 0;
    }
  }
  if (!fragment.direct) bounce_->Return(std::exchange(fragment.to, nullptr));
}

void UcxTransport::EndPull(PullOp& pull, const PullResult& result) {
  const PeerId peer = pull.peer->id;
  const uint64_t pull_id = pull.pull_id;
  std::erase(pull.peer->pulls, &pull);
  std::erase(pulls_waiting_, &pull);
  FreePull(pull);
  handler_->OnPulled(peer, pull_id, result);
}

void UcxTransport::FreePull(PullOp& pull) {
  for (Fragment& fragment : pull.fragments) {
    if (!fragment.direct && fragment.to != nullptr) bounce_->Return(std::exchange(fragment.to, nullptr));
  }
  if (pull.trailer != nullptr) bounce_->ReturnSmall(std::exchange(pull.trailer, nullptr));
  pull.fragments.clear();
  pull.peer = nullptr;
  pull_pool_.Give(&pull);
}

// Gives up one read without cutting the peer off: possible while nothing of it is under way into its target.
bool UcxTransport::CancelPull(PeerId id, uint64_t pull_id) {
  UcxPeer* peer = Find(id);
  if (peer == nullptr) return true;
  for (PullOp* pull : peer->pulls) {
    if (pull->pull_id != pull_id) continue;
    if (pull->direct_in_flight > 0) return false;
    std::erase(peer->pulls, pull);
    std::erase(pulls_waiting_, pull);
    pull->peer = nullptr;
    if (pull->in_flight == 0) WantAdvance(*pull);
    ++counters_.cancelled_pulls;
    return true;
  }
  return true;
}

}  // namespace cistern
