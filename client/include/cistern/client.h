#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cistern/status.h"

// cistern's client library: find, load and store KV blocks of a cluster from inside an inference server.
//
// Promises: bytes that a call reports as OK were checked (key, fingerprint, generation, CRC-32C) after they
// arrived; every call ends by its deadline with a result for every page; a dead, slow or full cache is a
// miss, never an exception.
namespace cistern {

// The outcome for one page or part; the same values as on the wire.
enum class PageResult : uint8_t {
  kOk = 0,
  kMiss = 1,
  kLayout = 2,
  kStale = 3,
  kLeaseExpired = 4,
  kCorrupt = 5,
  kNoSpace = 6,
  kBusy = 7,
  kTooLarge = 8,
  kExists = 9,
  kDenied = 10,
  kDeadline = 11,
  kPeerGone = 12,
  kCancelled = 13,
  kInvalid = 14,
  kWrongShard = 15,
  kBreakerOpen = 16,
};
const char* PageResultName(PageResult result);

struct ClientOptions {
  std::string router = "127.0.0.1:7400";  // HOST:PORT
  std::string transport = "auto";         // "auto", "map" (same host only), "socket" or "ucx"
  // This host's address on the fabric: nodes that have one too are then reached by UCX, unless they are on
  // this host. Empty: no fabric, except with transport "ucx", which then goes as routed.
  std::string fabric;
  std::string fabric_transports;  // UCX's, as in "\rc_verbs"; empty: all but shared memory and UD.
  std::string fabric_devices;     // UCX's devices, as in "mlx5_0:1"; empty: all.
  bool require_rdma = false;      // Connect fails without an RDMA device.
  std::string tenant;             // Empty: "default"
  bool admin = false;             // Asks for a ticket that may set quotas and drop what others stored.
  bool spin = false;              // Burn the calling thread while waiting, for lowest latency.
  std::chrono::milliseconds default_deadline{2000};
  std::chrono::milliseconds connect_deadline{5000};  // For Connect itself: the first map and ticket.
  // Whether Connect goes on trying for that long while nobody listens at the router's address. True for what
  // starts together with the router; tools say no.
  bool wait_for_router = true;
  std::chrono::milliseconds lease_ttl{2000};  // At most 30 s.
  // Put window shared with nodes on this host; memory of AllocateBuffer.
  size_t window_bytes = size_t{64} << 20;
  // Not empty: ranks of one engine on this host, and nobody else, give the same name (docs/adr/0022). They
  // hand each other what calls with CallOptions::host_shared bring, through shared memory of so many bytes a
  // part size.
  std::string host_share;
  size_t host_share_bytes = size_t{64} << 20;
  uint64_t min_prefix_tokens = 0;  // Prompts of fewer tokens are not looked for: a miss, "below_minimum".
  uint32_t breaker_failures = 5;   // Failures in a row that open a peer's breaker.
  std::chrono::milliseconds breaker_retry{500};
  // How long a dead peer's blocks count as misses without asking.
  std::chrono::milliseconds negative_ttl{1000};
};

// What bytes a block has. All fields but `model` are part of every key.
struct Layout {
  std::string model;
  uint32_t block_tokens = 0;     // Tokens a block.
  uint32_t part_bytes = 0;       // Bytes of one part, 1 B to 4 MiB.
  uint16_t slices = 1;           // Head ranges that TP ranks take whole.
  uint16_t spans = 1;            // Layer ranges.
  std::string dtype = "opaque";  // "bf16", "fp16", "e4m3", ...
  std::string geometry;          // Anything else that makes bytes differ, as the caller writes it.
  std::array<uint8_t, 32> compute_digest{};  // Model config, weights, quantisation.
  // Layouts of several groups, windows and states (NamedLayout): their parts; part_bytes, slices, spans,
  // dtype and geometry above mean nothing then. Owners: this and every chain of it.
  std::shared_ptr<const struct GroupLayout> groups;
};
// A layout that comes with the library (`cistern layout list`), or a .textproto file. `scale` divides the
// bytes of every part, for tests on small machines. NotFound names what there is.
Result<Layout> NamedLayout(const std::string& name, uint32_t scale = 1);

// One group of a layout, as results name it.
struct LayoutGroup {
  std::string name;
  std::string family;  // "history", "window", "state" or "scratch".
};
std::vector<LayoutGroup> LayoutGroups(const Layout& layout);

// One stored part of a page: pages hold their parts one after the other, in this order.
struct PagePart {
  uint32_t group = 0;
  uint32_t slice = 0;
  uint32_t span = 0;
  uint32_t chunk = 0;  // Of a part above 4 MiB.
  uint32_t bytes = 0;
};

// What besides tokens makes the bytes of a block, and of all after it, differ.
struct ChainExtra {
  enum class Kind : uint8_t { kLora = 1, kContent = 2, kPromptEmbedding = 3, kSalt = 4 };
  Kind kind = Kind::kSalt;
  uint32_t block = 0;   // The block it applies to (and, by the chain, all after it).
  uint32_t offset = 0;  // Token offset in the block, kContent only.
  std::string value;
};

// The hashed blocks of one token sequence. Cheap to copy (shared, immutable).
class Chain {
 public:
  Chain() = default;
  uint32_t blocks() const;
  const Layout& layout() const;
  bool grouped() const { return layout().groups != nullptr; }
  std::array<uint8_t, 32> hash(uint32_t block) const;
  uint64_t fingerprint(uint32_t block) const;
  struct Rep;  // Internal.
  explicit Chain(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}
  const Rep* rep() const { return rep_.get(); }
  const std::shared_ptr<const Rep>& shared() const { return rep_; }

 private:
  std::shared_ptr<const Rep> rep_;
};

struct Piece {
  void* data = nullptr;
  size_t bytes = 0;
};
struct ConstPiece {
  const void* data = nullptr;
  size_t bytes = 0;
};
// Where one block's bytes go (its parts in slice-major, span order, one after the other), as one or several
// pieces.
struct Page {
  std::vector<Piece> pieces;
  Page() = default;
  Page(void* data, size_t bytes) : pieces{{data, bytes}} {}
};
struct ConstPage {
  std::vector<ConstPiece> pieces;
  ConstPage() = default;
  ConstPage(const void* data, size_t bytes) : pieces{{data, bytes}} {}
};

// How fast a stored block is held until its time to live ends.
enum class Pin : uint8_t {
  kNone = 0,
  kSoft = 1,  // May be demoted to a slower tier, and goes last.
  kHard = 2,  // Stays in its node's memory; charged to the tenant, which may be refused for it.
};

struct CallOptions {
  std::chrono::milliseconds deadline{0};  // 0: ClientOptions::default_deadline.
  // In layouts of one group: the slices and the spans (ranges of layers) that the call is about, pages hold
  // no others; count 0 means all. A load may name fewer than its plan did.
  uint16_t slice_first = 0;
  uint16_t slice_count = 0;
  uint16_t span_first = 0;
  uint16_t span_count = 0;
  // For layouts of several groups: what this rank has of the model. Ranks that do not fit the layout's slices
  // and spans get a miss with the reason "parallelism".
  uint32_t tp = 1, tp_rank = 0;
  uint32_t layer_first = 0, layer_end = 0;  // Pipeline stage [first, end); end 0: all layers.
  uint32_t dcp = 1, pcp = 1;                // Above 1: refused by name.
  // Load, LoadTail: how many neighbouring TP ranks this host has. Of those that hold the same bytes (a
  // replicated group, or a head that ranks share) one pulls each stretch of blocks, PullerOf tells which, and
  // passes them on by the engine's own means. 1: every rank pulls all it holds.
  uint32_t host_ranks = 1;
  // Load, Fetch, with ClientOptions::host_share: other ranks of this host load the same bytes now. One of
  // them pulls each part, the others take its copy and check it like any. In layouts of several groups: those
  // that ranks share. Tails are pulled by each, and so is what nodes of this host have, which is as near.
  bool host_shared = false;
  uint32_t align_tokens = 0;  // Plan, Lookup: hits are its multiples (the engine's block).
  // Plan, Lookup: explicit caching. Token counts, ascending, at most 4, at which what precedes is worth
  // keeping; a hit ends at one of them or at most 20 blocks before. Empty: it ends anywhere.
  std::vector<uint64_t> breakpoints{};
  uint64_t max_tokens = 0;  // ... and at most so long: prompt - 1. 0: the chain's length.
  // Plan: names the request for all its ranks, on whatever hosts: they get one length, the first one's. Asked
  // again with it, a client gives the same hit. At most 256 bytes; empty: everybody for himself.
  std::string request_id;
  // Fetch, in a layout with windows or states: where the tail at the hit's end goes, at least as large as it
  // (PageParts). Without its tail no page of the hit is OK.
  const struct Page* tail = nullptr;
  // Store: how long what is stored is wanted. 0: as long as its use earns it, or as the tenant's limits say.
  std::chrono::seconds ttl{0};
  bool ttl_slides = false;  // Counts from the last use, in place of the store.
  Pin pin = Pin::kNone;
  uint32_t ranks = 1;  // How many will ask: a hit's leases outlast its release until all have, or they end.
};
// A tail to store: where, and what it replaces.
struct TailOptions {
  bool junction = false;         // Two prompts were seen to part here: nothing replaces it.
  uint64_t replaces_tokens = 0;  // The boundary this prompt went on from: its tail goes first now. 0: none.
};

// A hit: leading blocks that are cached, leased until released or the lease ends. Release it; dropping the
// last copy does too.
class Hit {
 public:
  Hit() = default;
  uint32_t blocks() const;                  // Length of the hit in blocks; 0 is a miss.
  PageResult stopped_by() const;            // Why the next block did not count; kOk when the whole chain hit.
  std::string owner(uint32_t block) const;  // Node id that serves this block.
  uint64_t tokens() const;         // Its length; what the hit rule allows of the history that is there.
  uint64_t resume_tokens() const;  // Where the engine goes on: before that where the layout replays.
  uint64_t history_tokens()
      const;  // The hit there would be, were all tails there. Longer: prompts part there.
  const char* miss_reason() const;  // Why it is not longer: "never_seen", "evicted", "no_tail", ...; "none".
  struct Rep;                       // Internal.
  explicit Hit(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}
  Rep* rep() const { return rep_.get(); }
  const std::shared_ptr<Rep>& shared() const { return rep_; }

 private:
  std::shared_ptr<Rep> rep_;
};

struct LoadReport {
  Status status;                  // OK also when pages failed; see pages.
  uint32_t hit_blocks = 0;        // Fetch: blocks found. Load: blocks asked.
  std::vector<PageResult> pages;  // One per page asked.
  uint64_t bytes = 0;             // Verified bytes delivered.
  uint32_t ok_pages() const {
    uint32_t n = 0;
    for (PageResult r : pages) n += r == PageResult::kOk;
    return n;
  }
};
struct StoreReport {
  Status status;
  std::vector<PageResult> pages;  // kOk: visible now. kExists: it was there. Others: not stored.
  uint64_t bytes = 0;             // Written, without kExists.
};

struct RemoveReport {
  Status status;               // Not OK: some node did not answer, and may still have them.
  uint64_t removed_parts = 0;  // Counting those that readers still hold, and that nobody else finds.
};

using CallId = uint64_t;

// Thread-safe: any thread may submit, poll or wait. There is no thread inside the data path: whoever waits or
// polls drives it, and callbacks run on that thread, outside the client's lock. (One background thread
// follows the router.)
//
// fork(): a child must not use a client of its parent. Every call there is refused at once with
// kFailedPrecondition (`done` runs before the submission returns), and destroying it touches nothing that is
// the parent's. Nor can the child connect anew, since gRPC does not work on there: fork before you connect,
// or exec.
class Client {
 public:
  static Result<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  // Close, and frees. Calls must have been begun before it. From inside a callback of a waiting call, and
  // where Close gives up, the memory is kept for good.
  ~Client();
  // Ends what is out, and what callbacks ask for then, with kCancelled, fences all peers, and waits until the
  // calls of other threads have returned; buffers stay valid. Later calls are kCancelled. Not OK when a
  // thread stays inside a callback for 10 s. Idempotent.
  Status Close();

  // Hashes whole blocks of `tokens`; a part-filled last block is left out. InvalidArgument names the bad
  // field.
  Result<Chain> MakeChain(const Layout& layout, std::span<const uint32_t> tokens,
                          std::span<const ChainExtra> extras = {});
  // A longer chain that shares `prefix`: hashes only what is new.
  Result<Chain> ExtendChain(const Chain& prefix, std::span<const uint32_t> more_tokens,
                            std::span<const ChainExtra> extras = {});

  // Where a prompt with these breakpoints is to be committed: store blocks up to the last mark, and a tail at
  // each. Whole blocks; without breakpoints the prompt's last one.
  static Result<std::vector<uint64_t>> CommitMarks(const Chain& chain, std::span<const uint64_t> breakpoints);

  // --- asynchronous calls: done runs exactly once. Memory named by pages belongs to the client until then.
  // Leading blocks present, no lease.
  CallId Lookup(const Chain& chain, const CallOptions& options,
                std::function<void(Status, uint32_t blocks)> done);
  CallId Plan(const Chain& chain, const CallOptions& options, std::function<void(Status, Hit)> done);
  // Loads blocks [first, first + pages.size()) of a hit.
  CallId Load(const Hit& hit, uint32_t first, std::span<const Page> pages, const CallOptions& options,
              std::function<void(LoadReport)> done);
  // Plan and Load in one, one round trip where the path allows; leaves no lease. Page i takes block i.
  CallId Fetch(const Chain& chain, std::span<const Page> pages, const CallOptions& options,
               std::function<void(LoadReport)> done);
  // Stores blocks [first, first + pages.size()) of the chain; done when each is visible or refused. Every
  // rank calls it with its own `tp_rank`: what several hold alike is written by one of them, elected for each
  // stretch of blocks. A page of which this rank writes nothing is kExists, as one that was there.
  CallId Store(const Chain& chain, uint32_t first, std::span<const ConstPage> pages,
               const CallOptions& options, std::function<void(StoreReport)> done);
  // Layouts of several groups. Load, Store and their pages are about the history groups that every hit needs;
  // the calls below are about one other group, or about the tail (window and state) at a boundary. Parts of
  // one page: of a block (tokens 0), or of the tail at `tokens`.
  Result<std::vector<PagePart>> PageParts(const Chain& chain, const CallOptions& options,
                                          uint64_t tokens = 0) const;
  // The tail at the end of the hit into one page. OK only when all its parts are.
  CallId LoadTail(const Hit& hit, const Page& page, const CallOptions& options,
                  std::function<void(LoadReport)> done);
  // The tail at a boundary of the chain, a multiple of its block. It is visible once all ranks' parts are
  // here.
  CallId StoreTail(const Chain& chain, uint64_t tokens, const ConstPage& page, const TailOptions& tail,
                   const CallOptions& options, std::function<void(StoreReport)> done);
  LoadReport LoadTailWait(const Hit& hit, const Page& page, const CallOptions& options = {});
  StoreReport StoreTailWait(const Chain& chain, uint64_t tokens, const ConstPage& page,
                            const TailOptions& tail, const CallOptions& options = {});
  // With CallOptions::host_ranks: the TP rank of this host that pulls a block's part of a group; for a tail's
  // group the tail behind the block.
  static Result<uint32_t> PullerOf(const Chain& chain, uint32_t block, uint32_t group,
                                   const CallOptions& options);
  void Release(const Hit& hit);
  // Renews a hit's leases and tells whether it still holds, once the engine has found room for it: kOk, or
  // why not (kLeaseExpired, kPeerGone, ...). Then it counts as a miss.
  CallId Recheck(const Hit& hit, const CallOptions& options, std::function<void(PageResult)> done);
  PageResult RecheckWait(const Hit& hit, const CallOptions& options = {});
  // The call ends with kCancelled for what had not arrived; its memory is free when done has run.
  void Cancel(CallId call);

  // --- the same, waiting.
  Result<uint32_t> LookupWait(const Chain& chain, const CallOptions& options = {});
  Result<Hit> PlanWait(const Chain& chain, const CallOptions& options = {});
  LoadReport LoadWait(const Hit& hit, uint32_t first, std::span<const Page> pages,
                      const CallOptions& options = {});
  LoadReport FetchWait(const Chain& chain, std::span<const Page> pages, const CallOptions& options = {});
  StoreReport StoreWait(const Chain& chain, uint32_t first, std::span<const ConstPage> pages,
                        const CallOptions& options = {});

  // Removes all parts of the chains' blocks, in RAM and on disk, from every node of the map. Loads under way
  // keep their bytes. A node that is not in the map, or an answer that is missing, may bring a block back:
  // use it for values whose name changes with their bytes, or where an old value does no harm.
  RemoveReport RemoveWait(std::span<const Chain> chains, const CallOptions& options = {});

  // Drives transfers and deadlines; true if anything happened. Call it when event_fd() is readable, or in a
  // loop.
  bool Poll();
  // Readable (level-triggered) when Poll would find work, including deadlines.
  int event_fd() const;

  // Memory inside the put window: stores from it go to nodes on this host without a copy by the client.
  // Null when the window has no room. Frees with FreeBuffer or the client.
  void* AllocateBuffer(size_t bytes);
  void FreeBuffer(void* buffer);

  // Memory of the caller that a fabric may write parts into directly, as an engine's pages; other memory
  // costs one copy more. Begins on a page, bounded by what the device takes. Without a fabric: nothing
  // happens. No call that uses it may be outstanding when it is unregistered; unregister it before it is
  // freed.
  Status RegisterMemory(void* data, size_t bytes);
  void UnregisterMemory(void* data);

  // For metrics: exact counters by name, e.g. "client_hit_blocks_total", "client_breaker_open_total".
  std::vector<std::pair<std::string, uint64_t>> Counters() const;

  struct Impl;  // Internal; the CLI looks inside.
  Impl* impl() const { return impl_.get(); }

 private:
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cistern
