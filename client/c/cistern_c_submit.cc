#include <string>

#include "cistern/cistern_c.h"
#include "client/c/handles.h"

// The C ABI's submitted calls: a facade call whose end is told through one function pointer.
namespace cistern::c_abi {
namespace {

struct Done {
  cistern_done done;
  void* user;

  cistern_outcome Begin(const Status& status) const {
    cistern_outcome outcome{};
    outcome.struct_size = sizeof(outcome);
    outcome.message = status.message().c_str();
    outcome.code = static_cast<cistern_code>(status.code());
    return outcome;
  }
  void Tell(const cistern_outcome& outcome) const {
    if (done != nullptr) done(user, &outcome);
  }
  void operator()(const Status& status, uint32_t blocks) const {
    cistern_outcome outcome = Begin(status);
    outcome.blocks = blocks;
    Tell(outcome);
  }
  void operator()(const Status& status, Hit hit) const {
    cistern_outcome outcome = Begin(status);
    outcome.blocks = hit.blocks();
    if (status.ok() && done != nullptr) {
      outcome.hit = new (std::nothrow) cistern_hit{std::move(hit)};
      if (outcome.hit == nullptr) {
        outcome.code = CISTERN_RESOURCE_EXHAUSTED;
        outcome.message = "out of memory";
      }
    }
    Tell(outcome);
  }
  void operator()(const LoadReport& report) const { Pages(report, report.hit_blocks); }
  void operator()(const StoreReport& report) const { Pages(report, 0); }

 private:
  template <typename Report>
  void Pages(const Report& report, uint32_t blocks) const {
    cistern_outcome outcome = Begin(report.status);
    outcome.results = Results(report.pages);
    outcome.results_count = report.pages.size();
    outcome.bytes = report.bytes;
    outcome.blocks = blocks;
    Tell(outcome);
  }
};

// Refusals before the facade is reached end like every other call: through `done`.
template <typename Run>
uint64_t Submit(const PagesOf& given, const cistern_call* call, const Done& done, Run&& run) {
  uint64_t id = 0;
  Status refused;
  const cistern_code thrown = Guarded([&]() -> cistern_code {
    CallOptions options;
    refused = CheckPages(given);
    if (refused.ok()) refused = Take(call, options);
    if (refused.ok()) id = run(options);
    return CISTERN_OK;
  });
  if (thrown != CISTERN_OK) refused = {static_cast<Code>(thrown), cistern_error_message()};
  if (!refused.ok()) done.Tell(done.Begin(refused));
  return id;
}

}  // namespace
}  // namespace cistern::c_abi

namespace c_abi = cistern::c_abi;
using c_abi::Done;
using cistern::CallOptions;

extern "C" {

uint64_t cistern_submit_lookup(cistern_client* client, const cistern_chain* chain, const cistern_call* call,
                               cistern_done done, void* user) {
  const Done end{done, user};
  return c_abi::Submit({.client = client, .handle = chain}, call, end, [&](const CallOptions& options) {
    return client->client->Lookup(chain->chain, options, end);
  });
}
uint64_t cistern_submit_plan(cistern_client* client, const cistern_chain* chain, const cistern_call* call,
                             cistern_done done, void* user) {
  const Done end{done, user};
  return c_abi::Submit({.client = client, .handle = chain}, call, end, [&](const CallOptions& options) {
    return client->client->Plan(chain->chain, options, end);
  });
}
uint64_t cistern_submit_load(cistern_client* client, const cistern_hit* hit, uint32_t first,
                             const cistern_page* pages, size_t pages_count, const cistern_call* call,
                             cistern_done done, void* user) {
  const Done end{done, user};
  return c_abi::Submit(
      c_abi::Pages(client, hit, first, pages, pages_count), call, end, [&](const CallOptions& options) {
        return client->client->Load(hit->hit, first, c_abi::TakeTargets(pages, pages_count), options, end);
      });
}
uint64_t cistern_submit_fetch(cistern_client* client, const cistern_chain* chain, const cistern_page* pages,
                              size_t pages_count, const cistern_call* call, cistern_done done, void* user) {
  const Done end{done, user};
  return c_abi::Submit(
      c_abi::Pages(client, chain, 0, pages, pages_count), call, end, [&](const CallOptions& options) {
        return client->client->Fetch(chain->chain, c_abi::TakeTargets(pages, pages_count), options, end);
      });
}
uint64_t cistern_submit_store(cistern_client* client, const cistern_chain* chain, uint32_t first,
                              const cistern_page* pages, size_t pages_count, const cistern_call* call,
                              cistern_done done, void* user) {
  const Done end{done, user};
  return c_abi::Submit(c_abi::Pages(client, chain, first, pages, pages_count), call, end,
                       [&](const CallOptions& options) {
                         return client->client->Store(chain->chain, first,
                                                      c_abi::TakeSources(pages, pages_count), options, end);
                       });
}

void cistern_cancel(cistern_client* client, uint64_t call) {
  if (client == nullptr) return;
  (void)c_abi::Guarded([&]() -> cistern_code {
    client->client->Cancel(call);
    return CISTERN_OK;
  });
}
int cistern_poll(cistern_client* client) {
  if (client == nullptr) return 0;
  int did = 1;  // Without memory there is something left to do.
  (void)c_abi::Guarded([&]() -> cistern_code {
    did = client->client->Poll() ? 1 : 0;
    return CISTERN_OK;
  });
  return did;
}
int cistern_event_fd(const cistern_client* client) {
  return client == nullptr ? -1 : client->client->event_fd();
}

}  // extern "C"
