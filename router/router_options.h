#pragma once

#include <string>

namespace cistern {

// Options of cistern-router; main fills them from the command line, nothing else reads the environment.
struct RouterOptions {
  // Where clients and nodes reach the router. Anything but loopback is reachable by strangers and logged as a
  // warning.
  std::string listen = "127.0.0.1:7400";
  // Holds the router's lock and state; made when missing. No default: two routers must not share one by
  // accident.
  std::string data_dir;
  // The cluster's key, made by `cistern up`: 64 hex digits, mode 0600.
  std::string cluster_key_file;
  // 32 hex digits; empty: what data_dir has, or a new one on its first start.
  std::string cluster_id;
  // For people and logs.
  std::string router_id = "router-1";
  // Written (whole, by rename) once the router listens: its HOST:PORT; for starts with port 0. Empty: not
  // written.
  std::string address_file;
  // HOST:PORT that answers GET /metrics for Prometheus; empty: nothing listens.
  std::string metrics;
  // trace, debug, info, warn, error.
  std::string log_level = "info";
};

}  // namespace cistern
