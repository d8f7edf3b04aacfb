// The ABI that callers were compiled against, checked by a C compiler: sizes and offsets of x86-64 and
// AArch64 Linux. A line here never changes; a struct that grows gets a line for its new field and a new size.
#include "cistern/cistern_c.h"

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field " moved")
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " changed its size")

AT(cistern_options, router, 8);
AT(cistern_options, transport, 16);
AT(cistern_options, tenant, 24);
AT(cistern_options, window_bytes, 32);
AT(cistern_options, default_deadline_ms, 40);
AT(cistern_options, connect_deadline_ms, 44);
AT(cistern_options, lease_ttl_ms, 48);
AT(cistern_options, breaker_failures, 52);
AT(cistern_options, breaker_retry_ms, 56);
AT(cistern_options, negative_ttl_ms, 60);
AT(cistern_options, spin, 64);
AT(cistern_options, fail_fast, 65);
AT(cistern_options, host_share, 72);
AT(cistern_options, host_share_bytes, 80);
SIZE(cistern_options, 88);

AT(cistern_layout, model, 8);
AT(cistern_layout, dtype, 16);
AT(cistern_layout, geometry, 24);
AT(cistern_layout, compute_digest, 32);
AT(cistern_layout, block_tokens, 40);
AT(cistern_layout, part_bytes, 44);
AT(cistern_layout, slices, 48);
AT(cistern_layout, spans, 50);
SIZE(cistern_layout, 56);

AT(cistern_extra, value, 8);
AT(cistern_extra, value_bytes, 16);
AT(cistern_extra, kind, 24);
AT(cistern_extra, block, 28);
AT(cistern_extra, offset, 32);
SIZE(cistern_extra, 40);

AT(cistern_call, deadline_ms, 8);
AT(cistern_call, slice_first, 12);
AT(cistern_call, slice_count, 14);
AT(cistern_call, span_first, 16);
AT(cistern_call, span_count, 18);
AT(cistern_call, host_shared, 20);
SIZE(cistern_call, 24);

SIZE(cistern_piece, 16);
SIZE(cistern_page, 16);

AT(cistern_report, results, 8);
AT(cistern_report, bytes, 16);
AT(cistern_report, hit_blocks, 24);
AT(cistern_report, ok_pages, 28);
SIZE(cistern_report, 32);

AT(cistern_outcome, message, 8);
AT(cistern_outcome, results, 16);
AT(cistern_outcome, results_count, 24);
AT(cistern_outcome, hit, 32);
AT(cistern_outcome, bytes, 40);
AT(cistern_outcome, code, 48);
AT(cistern_outcome, blocks, 52);
SIZE(cistern_outcome, 56);

// Gives the linker a reason to want this file.
uint32_t cistern_abi_checked(void) { return CISTERN_ABI_VERSION; }
