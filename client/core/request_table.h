#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/make_room.h"
#include "transport/frame.h"

namespace cistern {

struct Operation;

inline constexpr uint32_t kRequestsMax =
    1u << 16;  // Frames awaiting a reply and pulls under way, all peers together.

// One frame that awaits its reply, or one pull. Pooled.
struct Request {
  uint64_t id = 0;   // On the wire; grows, never reused. 0: free.
  FrameType type{};  // kRead stands for pulls when `pull` is set.
  bool pull = false;
  bool sent = false;            // False: waits for the connection.
  bool unsent_payload = false;  // The transport still reads the payload's memory.
  bool receiving = false;       // Payload of the reply is landing.
  bool inlined = false;         // PLAN that asked for payload.
  Operation* op = nullptr;      // Null: given up; only the chunk is waited for.
  uint32_t index = 0;           // Ask, put frame or transfer of the operation.
  uint32_t peer = 0;            // Slot in the peer table.
  int32_t chunk = -1;           // Staging chunk that the node may be reading.
  Nanos sent_at = 0;
  uint32_t slot = 0;
  uint32_t op_pos = 0;    // In Operation::requests.
  uint32_t peer_pos = 0;  // In ClientPeer::requests.
};

// Pool of requests, found by id in constant time. Owner: the core. One thread. Does not allocate once it has
// grown.
class RequestTable {
 public:
  // Null when kRequestsMax are in use.
  Request* Add() {
    if (free_.empty()) {
      if (slots_.size() == kRequestsMax) return nullptr;
      auto made = std::make_unique<Request>();
      made->slot = static_cast<uint32_t>(slots_.size());
      MakeRoom(slots_);
      free_.reserve(slots_.capacity());  // Remove takes no memory.
      slots_.push_back(std::move(made));
      free_.push_back(slots_.back()->slot);
    }
    Request* request = slots_[free_.back()].get();
    free_.pop_back();
    const uint32_t slot = request->slot;
    *request = Request{};
    request->slot = slot;
    request->id = ++sequence_ << kSlotBits | slot;
    return request;
  }
  Request* Find(uint64_t id) {
    const uint64_t slot = id & (kRequestsMax - 1);
    if (slot >= slots_.size() || id == 0) return nullptr;
    Request* request = slots_[slot].get();
    return request->id == id ? request : nullptr;
  }
  void Remove(Request* request) {
    request->id = 0;
    free_.push_back(request->slot);
  }
  size_t in_use() const { return slots_.size() - free_.size(); }

 private:
  static constexpr int kSlotBits = 16;
  static_assert(kRequestsMax == 1u << kSlotBits);
  std::vector<std::unique_ptr<Request>> slots_;
  std::vector<uint32_t> free_;
  uint64_t sequence_ = 0;
};

}  // namespace cistern
