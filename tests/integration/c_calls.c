// The C ABI against a real cluster: ranges of layers of a load, and what two ranks of a host hand each other.
// Prints one JSON object of checks, all true when right.
//
//   c_calls ROUTER
#include <cistern/cistern_c.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 6, BLOCK_TOKENS = 16, SLICES = 2, SPANS = 4, PART = 16 << 10, PAGE = SLICES * SPANS * PART };

static unsigned char stored[BLOCKS * PAGE], loaded[BLOCKS * PAGE];
static int first_check = 1;

static void check(const char* name, int right) {
  printf("%s\"%s\": %s", first_check ? "{" : ", ", name, right ? "true" : "false");
  first_check = 0;
}
static void need(cistern_code code) {
  if (code == CISTERN_OK) return;
  fprintf(stderr, "c_calls: %s\n", cistern_error_message());
  exit(2);
}

struct pages {
  cistern_piece pieces[BLOCKS];
  cistern_page pages[BLOCKS];
};
static const cistern_page* pages_of(struct pages* p, unsigned char* memory, size_t bytes) {
  for (size_t i = 0; i < BLOCKS; ++i) {
    p->pieces[i] = (cistern_piece){memory + i * bytes, bytes};
    p->pages[i] = (cistern_page){&p->pieces[i], 1};
  }
  return p->pages;
}

struct named {
  const char* name;
  uint64_t value;
};
static void find(void* user, const char* name, uint64_t value) {
  struct named* n = user;
  if (strcmp(name, n->name) == 0) n->value = value;
}
static uint64_t counter(const cistern_client* client, const char* name) {
  struct named n = {name, 0};
  cistern_counters(client, find, &n);
  return n.value;
}

// Whether `loaded` holds spans [first, first + count) of all blocks.
static int holds(uint32_t first, uint32_t count) {
  const unsigned char* at = loaded;
  for (uint32_t block = 0; block < BLOCKS; ++block) {
    for (uint32_t slice = 0; slice < SLICES; ++slice, at += (size_t)count * PART) {
      const size_t from = (((size_t)block * SLICES + slice) * SPANS + first) * PART;
      if (memcmp(at, stored + from, (size_t)count * PART) != 0) return 0;
    }
  }
  return 1;
}

static void on_loaded(void* user, const cistern_outcome* outcome) {
  int* ok = user;
  *ok = outcome->code == CISTERN_OK && outcome->results_count == BLOCKS;
  for (size_t i = 0; i < outcome->results_count; ++i) *ok = *ok && outcome->results[i] == CISTERN_PAGE_OK;
}

static void layers(cistern_client* client, const cistern_chain* chain, const cistern_hit* hit) {
  struct pages p;
  cistern_report report = {.struct_size = sizeof(report)};
  cistern_call call = {.struct_size = sizeof(call), .span_first = 2, .span_count = 1};
  need(cistern_load(client, hit, 0, pages_of(&p, loaded, SLICES * PART), BLOCKS, &call, &report));
  check("one_range_is_loaded", report.ok_pages == BLOCKS && holds(2, 1));
  int ok = -1;
  call = (cistern_call){.struct_size = sizeof(call), .span_count = 2};
  cistern_submit_load(client, hit, 0, pages_of(&p, loaded, 2 * SLICES * PART), BLOCKS, &call, on_loaded, &ok);
  struct pollfd ready = {.fd = cistern_event_fd(client), .events = POLLIN};
  while (ok < 0) {
    if (!cistern_poll(client) && ok < 0) poll(&ready, 1, -1);  // Every call has a deadline, so this ends.
  }
  check("two_ranges_are_submitted", ok == 1 && holds(0, 2));
  call = (cistern_call){.struct_size = sizeof(call), .span_first = 3, .span_count = 2};
  check("ranges_that_are_not_there_are_refused",
        cistern_load(client, hit, 0, p.pages, BLOCKS, &call, &report) == CISTERN_INVALID_ARGUMENT &&
            strstr(cistern_error_message(), "spans") != NULL);
  // The same without a plan.
  call = (cistern_call){.struct_size = sizeof(call), .span_first = 1, .span_count = 2};
  need(cistern_fetch(client, chain, pages_of(&p, loaded, 2 * SLICES * PART), BLOCKS, &call, &report));
  check("ranges_are_fetched", report.ok_pages == BLOCKS && holds(1, 2));
  // The struct as it was before it knew ranges; what lies behind it is the caller's own.
  call = (cistern_call){.struct_size = 16, .span_first = 3, .span_count = 77, .host_shared = 1};
  need(cistern_load(client, hit, 0, pages_of(&p, loaded, PAGE), BLOCKS, &call, &report));
  check("callers_of_before_get_all", report.ok_pages == BLOCKS && holds(0, SPANS));
}

// A writer that has some ranges of layers stores those, and they are there for readers of the same.
static void stored_ranges(cistern_client* client, const cistern_chain* chain) {
  struct pages p;
  cistern_report report = {.struct_size = sizeof(report)};
  const cistern_call call = {.struct_size = sizeof(call), .span_first = 1, .span_count = 2};
  const size_t bytes = 2 * SLICES * PART;
  need(cistern_store(client, chain, 0, pages_of(&p, stored, bytes), BLOCKS, &call, &report));
  uint32_t some = 0, all = 0;
  need(cistern_lookup(client, chain, &call, &some));
  need(cistern_lookup(client, chain, NULL, &all));
  check("ranges_are_stored", report.ok_pages == BLOCKS && some == BLOCKS && all == 0);
  need(cistern_fetch(client, chain, pages_of(&p, loaded, bytes), BLOCKS, &call, &report));
  check("what_was_stored_comes_back",
        report.ok_pages == BLOCKS && memcmp(loaded, stored, BLOCKS * bytes) == 0);
}

static int fetched(cistern_client* client, const cistern_chain* chain, int shared) {
  struct pages p;
  memset(loaded, 0, sizeof(loaded));
  cistern_report report = {.struct_size = sizeof(report)};
  const cistern_call call = {.struct_size = sizeof(call), .host_shared = shared != 0};
  need(cistern_fetch(client, chain, pages_of(&p, loaded, PAGE), BLOCKS, &call, &report));
  return report.ok_pages == BLOCKS && holds(0, SPANS);
}

int main(int argc, char** argv) {
  char name[64];
  snprintf(name, sizeof(name), "c_calls %d", (int)getpid());
  const cistern_options options = {.struct_size = sizeof(options),
                                   .router = argc > 1 ? argv[1] : NULL,
                                   .transport = "socket",
                                   .host_share = name,
                                   .host_share_bytes = 8 << 20};
  cistern_client* ranks[2] = {NULL, NULL};
  for (int i = 0; i < 2; ++i) need(cistern_connect(&options, &ranks[i]));
  const cistern_layout layout = {.struct_size = sizeof(layout),
                                 .model = "c_calls",
                                 .block_tokens = BLOCK_TOKENS,
                                 .part_bytes = PART,
                                 .slices = SLICES,
                                 .spans = SPANS};
  uint32_t prompt[BLOCKS * BLOCK_TOKENS];
  for (uint32_t i = 0; i < BLOCKS * BLOCK_TOKENS; ++i) prompt[i] = i * 7 + 1;
  for (size_t i = 0; i < sizeof(stored); ++i) stored[i] = (unsigned char)(i / PART * 31 + i % 251);
  cistern_chain* chain = NULL;
  need(cistern_chain_make(ranks[0], &layout, prompt, BLOCKS * BLOCK_TOKENS, NULL, 0, &chain));
  struct pages p;
  cistern_report report = {.struct_size = sizeof(report)};
  need(cistern_store(ranks[0], chain, 0, pages_of(&p, stored, PAGE), BLOCKS, NULL, &report));
  check("stored", report.ok_pages == BLOCKS);

  cistern_hit* hit = NULL;
  need(cistern_plan(ranks[1], chain, NULL, &hit));
  check("found", cistern_hit_blocks(hit) == BLOCKS);
  layers(ranks[1], chain, hit);
  cistern_hit_free(hit);

  cistern_chain* other = NULL;
  ++prompt[0];
  need(cistern_chain_make(ranks[0], &layout, prompt, BLOCKS * BLOCK_TOKENS, NULL, 0, &other));
  stored_ranges(ranks[0], other);
  cistern_chain_free(other);

  check("fetched_alone", fetched(ranks[0], chain, 0));
  check("alone_is_alone", counter(ranks[0], "client_share_published_total") == 0);
  check("fetched_by_the_first", fetched(ranks[0], chain, 1));
  check("the_first_leaves_copies",
        counter(ranks[0], "client_share_published_total") == BLOCKS * SLICES * SPANS);
  check("fetched_by_the_second", fetched(ranks[1], chain, 1));
  check("the_second_takes_them", counter(ranks[1], "client_share_parts_total") == BLOCKS * SLICES * SPANS);
  printf("}\n");
  cistern_chain_free(chain);
  for (int i = 0; i < 2; ++i) cistern_close(ranks[i]);
  return 0;
}
