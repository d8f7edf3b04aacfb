#include "proto/metrics_server.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/host_port.h"

namespace cistern {
namespace {

class Figures final : public prometheus::Collectable {
 public:
  explicit Figures(MetricsSource source) : source_(std::move(source)) {}
  std::vector<prometheus::MetricFamily> Collect() const override { return source_(); }

 private:
  const MetricsSource source_;
};

}  // namespace

struct MetricsServer::Impl {
  std::shared_ptr<Figures> figures;
  std::string address;
  std::unique_ptr<prometheus::Exposer> exposer;  // Ends its threads first.
};

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& listen,
                                                                    MetricsSource source) {
  const absl::StatusOr<HostPort> at = ParseHostPort(listen, PortZero::kAnyFree);
  if (!at.ok()) return absl::InvalidArgumentError(absl::StrCat("--metrics: ", at.status().message()));
  auto impl = std::make_unique<Impl>();
  impl->figures = std::make_shared<Figures>(std::move(source));
  try {
    impl->exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", listen, "num_threads", std::to_string(kMetricsThreads),
                                 "request_timeout_ms", std::to_string(kMetricsDeadline / kMillisecond)});
    impl->exposer->RegisterCollectable(impl->figures);
    impl->address = absl::StrCat(at->HostText(), ":", impl->exposer->GetListeningPorts().at(0));
  } catch (const std::exception&) {  // It does not say why.
    return absl::UnavailableError(absl::StrCat("--metrics: cannot listen on ", listen,
                                               ": give an address of this host and a port that is free"));
  }
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

const std::string& MetricsServer::address() const { return impl_->address; }

}  // namespace cistern
