#include <nanobind/stl/string.h>

#include <chrono>
#include <functional>
#include <string>

#include "client/python/src/errors.h"
#include "client/python/src/gil.h"
#include "client/python/src/lent.h"
#include "client/python/src/values.h"

// Client: the calls that wait, with the GIL released, and the submitted ones, whose callbacks take it.
namespace cistern::py {
namespace {

using nb::literals::operator""_a;

// Ends the client without the GIL: callbacks of outstanding calls want it, perhaps on other threads.
void EndClient(Client* client) {
  if (PyGILState_Check() != 0) {
    const GilReleased released;
    delete client;
  } else {
    delete client;
  }
}

// Owners of the client: the Python object, each buffer it handed out, and whoever is inside a call.
struct PyClient {
  std::shared_ptr<Client> client;
  Client& get() const {
    if (client == nullptr) Raise({Code::kFailedPrecondition, "client: closed"});
    return *client;
  }
};

// Memory of the put window, as a Python buffer.
struct WindowBuffer {
  std::shared_ptr<Client> client;
  void* data = nullptr;
  size_t bytes = 0;
  WindowBuffer(std::shared_ptr<Client> owner, void* memory, size_t size)
      : client(std::move(owner)), data(memory), bytes(size) {}
  WindowBuffer(const WindowBuffer&) = delete;
  WindowBuffer& operator=(const WindowBuffer&) = delete;
  ~WindowBuffer() { client->FreeBuffer(data); }
};

int GetWindowBuffer(PyObject* self, Py_buffer* view, int flags) {
  auto* buffer = nb::inst_ptr<WindowBuffer>(self);
  return PyBuffer_FillInfo(view, self, buffer->data, static_cast<Py_ssize_t>(buffer->bytes), 0, flags);
}
PyType_Slot kWindowBufferSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(GetWindowBuffer)},
                                    {0, nullptr}};

CallOptions Options(uint32_t deadline_ms, uint16_t slice_first, uint16_t slice_count, uint16_t span_first = 0,
                    uint16_t span_count = 0, bool host_shared = false) {
  CallOptions options;
  options.deadline = std::chrono::milliseconds(deadline_ms);
  options.slice_first = slice_first;
  options.slice_count = slice_count;
  options.span_first = span_first;
  options.span_count = span_count;
  options.host_shared = host_shared;
  return options;
}

// A callback and what its call borrows; dies with the GIL held, on whichever thread drives the client.
struct Pending {
  nb::object callback;
  Lent lent;
};
std::shared_ptr<Pending> MakePending(nb::object callback) {
  auto* made = new Pending;
  made->callback = std::move(callback);
  return {made, [](Pending* pending) {
            const GilTaken taken;
            RunOrStay([&] { delete pending; });
          }};
}
// callback(result, None) or callback(None, error). What it raises is Python's to report, not ours to swallow.
template <typename Make>
void Tell(Pending& pending, const Status& status, Make&& make) {
  const GilTaken taken;
  RunOrStay([&] {
    try {
      if (status.ok()) {
        pending.callback(make(), nb::none());
      } else {
        pending.callback(nb::none(), MakeError(status));
      }
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("callback of a cistern call");
    }
  });
}
template <typename From>
std::function<void(From)> TellReport(std::shared_ptr<Pending> pending) {
  return [pending = std::move(pending)](From report) {
    const Status status = report.status;
    Tell(*pending, status, [&] { return nb::cast(TakeReport(std::move(report))); });
  };
}

nb::object Connect(std::string router, std::string transport, std::string tenant, bool spin,
                   uint32_t deadline_ms, uint32_t connect_deadline_ms, bool wait_for_router,
                   uint32_t lease_ttl_ms, uint64_t window_bytes, uint32_t breaker_failures,
                   uint32_t breaker_retry_ms, uint32_t negative_ttl_ms, std::string host_share,
                   uint64_t host_share_bytes) {
  ClientOptions options;
  options.router = std::move(router);
  options.transport = std::move(transport);
  options.tenant = std::move(tenant);
  options.spin = spin;
  options.default_deadline = std::chrono::milliseconds(deadline_ms);
  options.connect_deadline = std::chrono::milliseconds(connect_deadline_ms);
  options.wait_for_router = wait_for_router;
  options.lease_ttl = std::chrono::milliseconds(lease_ttl_ms);
  options.window_bytes = window_bytes;
  options.breaker_failures = breaker_failures;
  options.breaker_retry = std::chrono::milliseconds(breaker_retry_ms);
  options.negative_ttl = std::chrono::milliseconds(negative_ttl_ms);
  options.host_share = std::move(host_share);
  options.host_share_bytes = host_share_bytes;
  Result<std::unique_ptr<Client>> connected = [&] {
    const GilReleased released;
    return Client::Connect(options);
  }();
  PyClient made;
  made.client = {ValueOrRaise(std::move(connected)).release(), EndClient};
  return nb::cast(std::move(made));
}

// What is outstanding ends here, and so do the calls that other threads wait in, even while buffers keep the
// client itself.
void Close(PyClient& self) {
  const std::shared_ptr<Client> client = std::move(self.client);
  self.client = nullptr;
  if (client == nullptr) return;
  const Status closed = [&] {
    const GilReleased released;
    return client->Close();
  }();
  // In a forked child there is nothing to close.
  if (!closed.ok() && closed.code() != Code::kFailedPrecondition) Raise(closed);
}

nb::object Allocate(const PyClient& self, size_t bytes) {
  void* data = self.get().AllocateBuffer(bytes);
  if (data == nullptr) return nb::none();
  return nb::cast(new WindowBuffer(self.client, data, bytes), nb::rv_policy::take_ownership);
}

nb::dict Counters(const PyClient& self) {
  nb::dict out;
  for (const auto& [name, value] : self.get().Counters()) out[name.c_str()] = value;
  return out;
}

// --- calls that wait
Report LoadWait(const PyClient& self, const Hit& hit, nb::handle pages, uint32_t first, uint32_t deadline_ms,
                uint16_t slice_first, uint16_t slice_count, uint16_t span_first, uint16_t span_count,
                bool host_shared) {
  Lent lent;
  const std::vector<Page> targets = TakePages(pages, true, lent);
  const std::shared_ptr<Client> client = (self.get(), self.client);
  LoadReport report = [&] {
    const GilReleased released;
    return client->LoadWait(
        hit, first, targets,
        Options(deadline_ms, slice_first, slice_count, span_first, span_count, host_shared));
  }();
  return TakeReport(std::move(report));
}
Report FetchWait(const PyClient& self, const Chain& chain, nb::handle pages, uint32_t deadline_ms,
                 uint16_t slice_first, uint16_t slice_count, uint16_t span_first, uint16_t span_count,
                 bool host_shared) {
  Lent lent;
  const std::vector<Page> targets = TakePages(pages, true, lent);
  const std::shared_ptr<Client> client = (self.get(), self.client);
  LoadReport report = [&] {
    const GilReleased released;
    return client->FetchWait(
        chain, targets, Options(deadline_ms, slice_first, slice_count, span_first, span_count, host_shared));
  }();
  return TakeReport(std::move(report));
}
Report StoreWait(const PyClient& self, const Chain& chain, nb::handle pages, uint32_t first,
                 uint32_t deadline_ms, uint16_t slice_first, uint16_t slice_count) {
  Lent lent;
  const std::vector<ConstPage> sources = AsConst(TakePages(pages, false, lent));
  const std::shared_ptr<Client> client = (self.get(), self.client);
  StoreReport report = [&] {
    const GilReleased released;
    return client->StoreWait(chain, first, sources, Options(deadline_ms, slice_first, slice_count));
  }();
  return TakeReport(std::move(report));
}
uint32_t LookupWait(const PyClient& self, const Chain& chain, uint32_t deadline_ms, uint16_t slice_first,
                    uint16_t slice_count) {
  const std::shared_ptr<Client> client = (self.get(), self.client);
  Result<uint32_t> found = [&] {
    const GilReleased released;
    return client->LookupWait(chain, Options(deadline_ms, slice_first, slice_count));
  }();
  return ValueOrRaise(std::move(found));
}
Hit PlanWait(const PyClient& self, const Chain& chain, uint32_t deadline_ms, uint16_t slice_first,
             uint16_t slice_count) {
  const std::shared_ptr<Client> client = (self.get(), self.client);
  Result<Hit> hit = [&] {
    const GilReleased released;
    return client->PlanWait(chain, Options(deadline_ms, slice_first, slice_count));
  }();
  return ValueOrRaise(std::move(hit));
}

uint64_t RemoveWait(const PyClient& self, nb::sequence chains, uint32_t deadline_ms) {
  std::vector<Chain> removed;
  for (nb::handle chain : chains) removed.push_back(nb::cast<const Chain&>(chain));
  const std::shared_ptr<Client> client = (self.get(), self.client);
  RemoveReport report = [&] {
    const GilReleased released;
    return client->RemoveWait(removed, Options(deadline_ms, 0, 0));
  }();
  if (!report.status.ok()) Raise(report.status);
  return report.removed_parts;
}

// --- submitted calls. The submission itself runs without the GIL: the client's lock may be held by a thread
// that wants it.
CallId SubmitLookup(const PyClient& self, const Chain& chain, nb::object callback, uint32_t deadline_ms,
                    uint16_t slice_first, uint16_t slice_count) {
  auto pending = MakePending(std::move(callback));
  const std::shared_ptr<Client> client = (self.get(), self.client);
  const GilReleased released;
  return client->Lookup(chain, Options(deadline_ms, slice_first, slice_count),
                        [pending](Status status, uint32_t blocks) {
                          Tell(*pending, status, [&] { return nb::cast(blocks); });
                        });
}
CallId SubmitPlan(const PyClient& self, const Chain& chain, nb::object callback, uint32_t deadline_ms,
                  uint16_t slice_first, uint16_t slice_count) {
  auto pending = MakePending(std::move(callback));
  const std::shared_ptr<Client> client = (self.get(), self.client);
  const GilReleased released;
  return client->Plan(chain, Options(deadline_ms, slice_first, slice_count),
                      [pending](Status status, Hit hit) {
                        Tell(*pending, status, [&] { return nb::cast(std::move(hit)); });
                      });
}
CallId SubmitLoad(const PyClient& self, const Hit& hit, nb::handle pages, nb::object callback, uint32_t first,
                  uint32_t deadline_ms, uint16_t slice_first, uint16_t slice_count, uint16_t span_first,
                  uint16_t span_count) {
  auto pending = MakePending(std::move(callback));
  const std::vector<Page> targets = TakePages(pages, true, pending->lent);
  const std::shared_ptr<Client> client = (self.get(), self.client);
  const GilReleased released;
  return client->Load(hit, first, targets,
                      Options(deadline_ms, slice_first, slice_count, span_first, span_count),
                      TellReport<LoadReport>(pending));
}
CallId SubmitFetch(const PyClient& self, const Chain& chain, nb::handle pages, nb::object callback,
                   uint32_t deadline_ms, uint16_t slice_first, uint16_t slice_count, uint16_t span_first,
                   uint16_t span_count) {
  auto pending = MakePending(std::move(callback));
  const std::vector<Page> targets = TakePages(pages, true, pending->lent);
  const std::shared_ptr<Client> client = (self.get(), self.client);
  const GilReleased released;
  return client->Fetch(chain, targets, Options(deadline_ms, slice_first, slice_count, span_first, span_count),
                       TellReport<LoadReport>(pending));
}
CallId SubmitStore(const PyClient& self, const Chain& chain, nb::handle pages, nb::object callback,
                   uint32_t first, uint32_t deadline_ms, uint16_t slice_first, uint16_t slice_count) {
  auto pending = MakePending(std::move(callback));
  const std::vector<ConstPage> sources = AsConst(TakePages(pages, false, pending->lent));
  const std::shared_ptr<Client> client = (self.get(), self.client);
  const GilReleased released;
  return client->Store(chain, first, sources, Options(deadline_ms, slice_first, slice_count),
                       TellReport<StoreReport>(pending));
}

template <typename Class>
void BindSubmissions(Class& type) {
  type.def("submit_lookup", &SubmitLookup, "chain"_a, "callback"_a, nb::kw_only(), "deadline_ms"_a = 0,
           "slice_first"_a = 0, "slice_count"_a = 0)
      .def("submit_plan", &SubmitPlan, "chain"_a, "callback"_a, nb::kw_only(), "deadline_ms"_a = 0,
           "slice_first"_a = 0, "slice_count"_a = 0)
      .def("submit_load", &SubmitLoad, "hit"_a, "pages"_a, "callback"_a, nb::kw_only(), "first"_a = 0,
           "deadline_ms"_a = 0, "slice_first"_a = 0, "slice_count"_a = 0, "span_first"_a = 0,
           "span_count"_a = 0)
      .def("submit_fetch", &SubmitFetch, "chain"_a, "pages"_a, "callback"_a, nb::kw_only(),
           "deadline_ms"_a = 0, "slice_first"_a = 0, "slice_count"_a = 0, "span_first"_a = 0,
           "span_count"_a = 0)
      .def("submit_store", &SubmitStore, "chain"_a, "pages"_a, "callback"_a, nb::kw_only(), "first"_a = 0,
           "deadline_ms"_a = 0, "slice_first"_a = 0, "slice_count"_a = 0)
      .def(
          "cancel",
          [](const PyClient& self, CallId call) {
            const std::shared_ptr<Client> client = (self.get(), self.client);
            const GilReleased released;
            client->Cancel(call);
          },
          "call"_a)
      .def("poll",
           [](const PyClient& self) {
             const std::shared_ptr<Client> client = (self.get(), self.client);
             const GilReleased released;
             return client->Poll();
           })
      .def("fileno", [](const PyClient& self) { return self.get().event_fd(); });
}

template <typename Class>
void BindWaits(Class& type) {
  type.def("lookup", &LookupWait, "chain"_a, nb::kw_only(), "deadline_ms"_a = 0, "slice_first"_a = 0,
           "slice_count"_a = 0)
      .def("plan", &PlanWait, "chain"_a, nb::kw_only(), "deadline_ms"_a = 0, "slice_first"_a = 0,
           "slice_count"_a = 0)
      .def("load", &LoadWait, "hit"_a, "pages"_a, nb::kw_only(), "first"_a = 0, "deadline_ms"_a = 0,
           "slice_first"_a = 0, "slice_count"_a = 0, "span_first"_a = 0, "span_count"_a = 0,
           "host_shared"_a = false)
      .def("fetch", &FetchWait, "chain"_a, "pages"_a, nb::kw_only(), "deadline_ms"_a = 0, "slice_first"_a = 0,
           "slice_count"_a = 0, "span_first"_a = 0, "span_count"_a = 0, "host_shared"_a = false)
      .def("store", &StoreWait, "chain"_a, "pages"_a, nb::kw_only(), "first"_a = 0, "deadline_ms"_a = 0,
           "slice_first"_a = 0, "slice_count"_a = 0)
      .def("remove", &RemoveWait, "chains"_a, nb::kw_only(), "deadline_ms"_a = 0)
      .def(
          "release", [](const PyClient& self, const Hit& hit) { self.get().Release(hit); }, "hit"_a);
}

}  // namespace

void BindCalls(nb::module_& module) {
  nb::class_<WindowBuffer>(module, "Buffer", nb::type_slots(kWindowBufferSlots))
      .def("__len__", [](const WindowBuffer& buffer) { return buffer.bytes; })
      .def_prop_ro("nbytes", [](const WindowBuffer& buffer) { return buffer.bytes; });
  nb::class_<PyClient> type(module, "NativeClient");
  type.def_static("connect", &Connect, nb::kw_only(), "router"_a, "transport"_a, "tenant"_a, "spin"_a,
                  "deadline_ms"_a, "connect_deadline_ms"_a, "wait_for_router"_a, "lease_ttl_ms"_a,
                  "window_bytes"_a, "breaker_failures"_a, "breaker_retry_ms"_a, "negative_ttl_ms"_a,
                  "host_share"_a, "host_share_bytes"_a)
      .def("close", &Close)
      .def_prop_ro("closed", [](const PyClient& self) { return self.client == nullptr; })
      .def(
          "chain",
          [](const PyClient& self, const Layout& layout, nb::handle tokens, nb::handle extras) {
            const Tokens ids(tokens);
            return ValueOrRaise(self.get().MakeChain(layout, ids.span(), TakeExtras(extras)));
          },
          "layout"_a, "tokens"_a, "extras"_a.none() = nb::none())
      .def(
          "extend",
          [](const PyClient& self, const Chain& prefix, nb::handle tokens, nb::handle extras) {
            const Tokens ids(tokens);
            return ValueOrRaise(self.get().ExtendChain(prefix, ids.span(), TakeExtras(extras)));
          },
          "prefix"_a, "tokens"_a, "extras"_a.none() = nb::none())
      .def("allocate", &Allocate, "nbytes"_a)
      .def("counters", &Counters);
  BindWaits(type);
  BindSubmissions(type);
}

}  // namespace cistern::py
