// embed.cc in C: finds what is cached of a prompt, loads it, "computes" the rest and stores it, twice; the
// second turn submits its fetch and drives it itself. embed_c ROUTER (HOST:PORT).
#include <cistern/cistern_c.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 12, BLOCK_TOKENS = 16, PART_BYTES = 64 << 10 };

struct fetched {
  int ended;
  uint32_t ok;
};

static void on_fetched(void* user, const cistern_outcome* outcome) {
  struct fetched* f = user;
  for (size_t i = 0; i < outcome->results_count && outcome->results[i] == CISTERN_PAGE_OK; ++i) ++f->ok;
  f->ended = 1;
}

// Fetches into the pages; gives the number of leading blocks that arrived.
static uint32_t fetch(cistern_client* client, const cistern_chain* chain, const cistern_page* pages,
                      int submit) {
  uint32_t leading = 0;
  if (submit) {
    struct fetched f = {0, 0};
    cistern_submit_fetch(client, chain, pages, BLOCKS, NULL, on_fetched, &f);
    struct pollfd ready = {.fd = cistern_event_fd(client), .events = POLLIN};
    while (!f.ended) {
      if (!cistern_poll(client) && !f.ended) poll(&ready, 1, -1);  // Every call has a deadline, so this ends.
    }
    return f.ok;
  }
  cistern_page_result results[BLOCKS];
  memset(results, CISTERN_PAGE_MISS, sizeof(results));
  cistern_report report = {.struct_size = sizeof(report), .results = results};
  if (cistern_fetch(client, chain, pages, BLOCKS, NULL, &report) != CISTERN_OK) return 0;
  while (leading < BLOCKS && results[leading] == CISTERN_PAGE_OK) ++leading;
  return leading;
}

int main(int argc, char** argv) {
  cistern_options options = {.struct_size = sizeof(options), .router = argc > 1 ? argv[1] : NULL};
  cistern_client* client = NULL;
  if (cistern_connect(&options, &client) != CISTERN_OK) {
    fprintf(stderr, "embed_c: %s\n", cistern_error_message());
    return 2;
  }
  const cistern_layout layout = {.struct_size = sizeof(layout),
                                 .model = "example",
                                 .geometry = "c",
                                 .block_tokens = BLOCK_TOKENS,
                                 .part_bytes = PART_BYTES};
  uint32_t prompt[BLOCKS * BLOCK_TOKENS];
  for (uint32_t i = 0; i < BLOCKS * BLOCK_TOKENS; ++i) prompt[i] = i * 7 + 1;
  cistern_chain* chain = NULL;
  if (cistern_chain_make(client, &layout, prompt, BLOCKS * BLOCK_TOKENS, NULL, 0, &chain) != CISTERN_OK)
    return 1;

  int code = 0;
  unsigned char* memory = malloc((size_t)BLOCKS * PART_BYTES);
  for (int turn = 0; turn < 2 && code == 0; ++turn) {
    cistern_piece pieces[BLOCKS];
    cistern_page pages[BLOCKS];
    for (size_t i = 0; i < BLOCKS; ++i) {
      pieces[i] = (cistern_piece){memory + i * PART_BYTES, PART_BYTES};
      pages[i] = (cistern_page){&pieces[i], 1};
    }
    memset(memory, 0, (size_t)BLOCKS * PART_BYTES);
    const uint32_t cached = fetch(client, chain, pages, turn == 1);
    for (uint32_t i = 0; i < cached; ++i) {
      if (memory[(size_t)i * PART_BYTES] != 'a' + i) code = 1;  // Never: what is OK was checked.
    }
    for (uint32_t i = cached; i < BLOCKS; ++i)
      memset(memory + (size_t)i * PART_BYTES, 'a' + (int)i, PART_BYTES);
    cistern_report report = {.struct_size = sizeof(report)};
    if (cached < BLOCKS &&
        cistern_store(client, chain, cached, pages + cached, BLOCKS - cached, NULL, &report) != CISTERN_OK)
      code = 1;
    printf("turn %d: %u of %d blocks were cached, %u stored\n", turn, cached, BLOCKS, report.ok_pages);
    if (turn == 1 && cached != BLOCKS) code = 1;
  }
  free(memory);
  cistern_chain_free(chain);
  cistern_close(client);
  return code;
}
