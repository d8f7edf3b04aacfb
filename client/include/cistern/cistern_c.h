#pragma once

#include <stddef.h>
#include <stdint.h>

// The C ABI of libcistern: what cistern/client.h does, for everything that cannot speak C++.
//
// sizes:   every struct begins with struct_size, set by the caller to sizeof of the struct it was compiled
// with. Fields
//          are only ever added at the end; a library that knows fewer ignores the rest when it is zero and
//          refuses the call otherwise, one that knows more takes the missing ones as zero. Zero (or NULL)
//          always means the default.
// errors:  functions that can fail return a cistern_code. The message belongs to the calling thread until its
// next
//          call: cistern_error_message(). A miss is no error: it is a length of 0, or a result per page.
//          No exception leaves the library; memory that runs out is CISTERN_RESOURCE_EXHAUSTED.
// threads: a client may be used by any number of threads at once. A chain never changes and may be shared. A
// hit may be
//          used by several threads, and freed once. There is no thread inside the data path: whoever waits or
//          polls drives it, and a callback runs on that thread, with no lock held; it may submit, but it must
//          not wait, poll or close. cistern_close ends the calls outstanding, of other threads too, with
//          CISTERN_CANCELLED (for pages CISTERN_PAGE_CANCELLED) and waits until those threads have left them;
//          a call must have been begun before it. A thread that stays inside its callback for 10 s keeps the
//          client's memory for good.
// fork:    fork before you connect, or exec. In a child, every call with a client of its parent is refused at
//          once with CISTERN_FAILED_PRECONDITION, cistern_close touches nothing that is the parent's, and
//          cistern_connect is refused when the parent has had a client: gRPC does not work on in a child.
// memory:  handles are freed by their own function, NULL is allowed there. A hit may outlive its client.
// Memory named by
//          pages belongs to the library until the call has returned, for submitted calls until `done` has
//          run.
#ifdef __cplusplus
extern "C" {
#endif

// Grows when functions are added. A change that would break callers takes another name for the library.
#define CISTERN_ABI_VERSION 1
uint32_t cistern_abi_version(void);

// The same numbers as gRPC.
typedef int32_t cistern_code;
enum {
  CISTERN_OK = 0,
  CISTERN_CANCELLED = 1,
  CISTERN_UNKNOWN = 2,
  CISTERN_INVALID_ARGUMENT = 3,
  CISTERN_DEADLINE_EXCEEDED = 4,
  CISTERN_NOT_FOUND = 5,
  CISTERN_ALREADY_EXISTS = 6,
  CISTERN_PERMISSION_DENIED = 7,
  CISTERN_RESOURCE_EXHAUSTED = 8,
  CISTERN_FAILED_PRECONDITION = 9,
  CISTERN_ABORTED = 10,
  CISTERN_UNIMPLEMENTED = 12,
  CISTERN_INTERNAL = 13,
  CISTERN_UNAVAILABLE = 14,
  CISTERN_DATA_LOSS = 15,
  CISTERN_UNAUTHENTICATED = 16
};

// The outcome for one page; the same numbers as on the wire. More may come: treat what you do not know as a
// miss.
typedef uint8_t cistern_page_result;
enum {
  CISTERN_PAGE_OK = 0,
  CISTERN_PAGE_MISS = 1,
  CISTERN_PAGE_LAYOUT = 2,
  CISTERN_PAGE_STALE = 3,
  CISTERN_PAGE_LEASE_EXPIRED = 4,
  CISTERN_PAGE_CORRUPT = 5,
  CISTERN_PAGE_NO_SPACE = 6,
  CISTERN_PAGE_BUSY = 7,
  CISTERN_PAGE_TOO_LARGE = 8,
  CISTERN_PAGE_EXISTS = 9,
  CISTERN_PAGE_DENIED = 10,
  CISTERN_PAGE_DEADLINE = 11,
  CISTERN_PAGE_PEER_GONE = 12,
  CISTERN_PAGE_CANCELLED = 13,
  CISTERN_PAGE_INVALID = 14,
  CISTERN_PAGE_WRONG_SHARD = 15,
  CISTERN_PAGE_BREAKER_OPEN = 16
};
const char* cistern_page_result_name(cistern_page_result result);

// Why the last call of this thread that returned a code failed; empty when it did not.
const char* cistern_error_message(void);

typedef struct cistern_client cistern_client;
typedef struct cistern_chain cistern_chain;
typedef struct cistern_hit cistern_hit;

typedef struct cistern_options {
  size_t struct_size;
  const char* router;     // HOST:PORT; default 127.0.0.1:7400.
  const char* transport;  // "auto", "map" or "socket".
  const char* tenant;
  uint64_t window_bytes;  // Memory of cistern_alloc_buffer.
  uint32_t default_deadline_ms;
  uint32_t connect_deadline_ms;
  uint32_t lease_ttl_ms;  // At most 30 s.
  uint32_t breaker_failures;
  uint32_t breaker_retry_ms;
  uint32_t negative_ttl_ms;
  uint8_t spin;       // 1: burn the calling thread while waiting.
  uint8_t fail_fast;  // 1: do not wait for a router that nobody listens for.
  uint8_t reserved[6];
  // Ranks of one engine on this host, and nobody else, give the same name: they hand each other what calls
  // with host_shared load, through shared memory of so many bytes a part size. NULL: each loads its own.
  const char* host_share;
  uint64_t host_share_bytes;
} cistern_options;

// What bytes a block has: Layout of cistern/client.h. All fields but `model` are part of every key; what
// belongs to a model goes into `compute_digest` or `geometry`.
typedef struct cistern_layout {
  size_t struct_size;
  const char* model;
  const char* dtype;              // NULL: "opaque".
  const char* geometry;           // NULL: empty.
  const uint8_t* compute_digest;  // 32 bytes, or NULL for zeros.
  uint32_t block_tokens;
  uint32_t part_bytes;
  uint16_t slices;  // 0: 1.
  uint16_t spans;   // 0: 1.
  uint8_t reserved[4];
} cistern_layout;

enum {
  CISTERN_EXTRA_LORA = 1,
  CISTERN_EXTRA_CONTENT = 2,
  CISTERN_EXTRA_PROMPT_EMBEDDING = 3,
  CISTERN_EXTRA_SALT = 4
};
typedef struct cistern_extra {
  size_t struct_size;
  const void* value;
  size_t value_bytes;
  uint32_t kind;
  uint32_t block;   // It applies to this block and, by the chain, to all after it.
  uint32_t offset;  // Token in the block, CISTERN_EXTRA_CONTENT only.
  uint8_t reserved[4];
} cistern_extra;

typedef struct cistern_call {
  size_t struct_size;
  uint32_t deadline_ms;
  // The slices and the spans (ranges of layers) that the call is about, pages hold no others; count 0 means
  // all. A load may name fewer than its plan did.
  uint16_t slice_first;
  uint16_t slice_count;
  uint16_t span_first;
  uint16_t span_count;
  // 1, load and fetch, with cistern_options.host_share: other ranks of this host load the same bytes now. One
  // of them pulls each part from a node elsewhere, the others take its copy and check it like any.
  uint8_t host_shared;
  uint8_t reserved[3];
} cistern_call;

typedef struct cistern_piece {
  void* data;  // A store only reads it.
  size_t bytes;
} cistern_piece;
// One block's bytes, its parts one after the other. Neither struct ever grows: both stand in arrays.
typedef struct cistern_page {
  const cistern_piece* pieces;
  size_t pieces_count;
} cistern_page;

// What a load, fetch or store of n pages did. `results` is the caller's: room for n bytes, or NULL. All are
// CISTERN_PAGE_INVALID after a call that was refused.
typedef struct cistern_report {
  size_t struct_size;
  cistern_page_result* results;
  uint64_t bytes;       // Verified and delivered; for a store: written.
  uint32_t hit_blocks;  // Fetch: blocks found. Load: blocks asked.
  uint32_t ok_pages;    // CISTERN_PAGE_OK; for a store EXISTS counts as well.
} cistern_report;

// --- client
cistern_code cistern_connect(const cistern_options* options, cistern_client** out);  // options may be NULL.
void cistern_close(cistern_client* client);
// Memory that stores to nodes on this host take without a copy. NULL when there is no room.
void* cistern_alloc_buffer(cistern_client* client, size_t bytes);
void cistern_free_buffer(cistern_client* client, void* buffer);
// Calls `each` with every counter, on this thread.
void cistern_counters(const cistern_client* client,
                      void (*each)(void* user, const char* name, uint64_t value), void* user);

// --- chains: whole blocks of `tokens` are hashed, a part-filled last one is left out.
cistern_code cistern_chain_make(cistern_client* client, const cistern_layout* layout, const uint32_t* tokens,
                                size_t tokens_count, const cistern_extra* extras, size_t extras_count,
                                cistern_chain** out);
cistern_code cistern_chain_extend(cistern_client* client, const cistern_chain* prefix,
                                  const uint32_t* more_tokens, size_t tokens_count,
                                  const cistern_extra* extras, size_t extras_count, cistern_chain** out);
void cistern_chain_free(cistern_chain* chain);
uint32_t cistern_chain_blocks(const cistern_chain* chain);
cistern_code cistern_chain_key(const cistern_chain* chain, uint32_t block, uint8_t hash[32],
                               uint64_t* fingerprint);

// --- waiting calls. `call` may be NULL. They return CISTERN_OK also when pages failed: see the report.
cistern_code cistern_lookup(cistern_client* client, const cistern_chain* chain, const cistern_call* call,
                            uint32_t* blocks);
cistern_code cistern_plan(cistern_client* client, const cistern_chain* chain, const cistern_call* call,
                          cistern_hit** out);
cistern_code cistern_load(cistern_client* client, const cistern_hit* hit, uint32_t first,
                          const cistern_page* pages, size_t pages_count, const cistern_call* call,
                          cistern_report* report);
cistern_code cistern_fetch(cistern_client* client, const cistern_chain* chain, const cistern_page* pages,
                           size_t pages_count, const cistern_call* call, cistern_report* report);
cistern_code cistern_store(cistern_client* client, const cistern_chain* chain, uint32_t first,
                           const cistern_page* pages, size_t pages_count, const cistern_call* call,
                           cistern_report* report);

// --- hits: leased until freed or the lease ends.
uint32_t cistern_hit_blocks(const cistern_hit* hit);
cistern_page_result cistern_hit_stopped_by(const cistern_hit* hit);
void cistern_hit_free(cistern_hit* hit);

// --- submitted calls: `done` runs exactly once, perhaps before the submission returns when the arguments are
// bad.
typedef struct cistern_outcome {
  size_t struct_size;
  const char* message;                 // Never NULL; until `done` returns.
  const cistern_page_result* results;  // One a page, until `done` returns; NULL for lookup and plan.
  size_t results_count;
  cistern_hit* hit;  // Plan only, and only with CISTERN_OK: `done` owns it.
  uint64_t bytes;
  cistern_code code;
  uint32_t blocks;  // Lookup and plan: length of the hit. Fetch: blocks found. Load: blocks asked.
} cistern_outcome;
typedef void (*cistern_done)(void* user, const cistern_outcome* outcome);

// Each returns what names the call for cistern_cancel; 0 when the arguments were refused (`done` has run
// then).
uint64_t cistern_submit_lookup(cistern_client* client, const cistern_chain* chain, const cistern_call* call,
                               cistern_done done, void* user);
uint64_t cistern_submit_plan(cistern_client* client, const cistern_chain* chain, const cistern_call* call,
                             cistern_done done, void* user);
uint64_t cistern_submit_load(cistern_client* client, const cistern_hit* hit, uint32_t first,
                             const cistern_page* pages, size_t pages_count, const cistern_call* call,
                             cistern_done done, void* user);
uint64_t cistern_submit_fetch(cistern_client* client, const cistern_chain* chain, const cistern_page* pages,
                              size_t pages_count, const cistern_call* call, cistern_done done, void* user);
uint64_t cistern_submit_store(cistern_client* client, const cistern_chain* chain, uint32_t first,
                              const cistern_page* pages, size_t pages_count, const cistern_call* call,
                              cistern_done done, void* user);
void cistern_cancel(cistern_client* client, uint64_t call);
// Drives transfers and deadlines; 1 if anything happened. Call it when cistern_event_fd is readable, or in a
// loop.
int cistern_poll(cistern_client* client);
int cistern_event_fd(const cistern_client* client);

#ifdef __cplusplus
}
#endif
