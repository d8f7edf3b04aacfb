#include "client/cli/connect.h"

#include "absl/status/status.h"
#include "client/cli/router_words.h"

namespace cistern {

Result<std::unique_ptr<Client>> ConnectClient(const CliOptions& options,
                                              const std::function<void(ClientOptions&)>& adjust) {
  ClientOptions client;
  client.router = options.router;
  client.transport = options.transport;
  client.wait_for_router = false;
  client.fabric = options.fabric.address;
  client.fabric_transports = options.fabric.transports;
  client.fabric_devices = options.fabric.devices;
  client.require_rdma = options.fabric.require_rdma;
  if (adjust) adjust(client);
  Result<std::unique_ptr<Client>> connected = Client::Connect(client);
  if (connected.ok()) return connected;
  return Status(connected.status().code(), RouterWords(connected.status().message()));
}

std::string Words(const absl::Status& status) {
  if (!status.message().empty()) return std::string(status.message());
  return absl::StatusCodeToString(status.code());
}

}  // namespace cistern
