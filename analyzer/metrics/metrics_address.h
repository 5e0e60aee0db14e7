// Where live figures are served.
#pragma once

#include <sys/socket.h>

#include <string>

#include "support/result.h"

namespace whyrss {

struct MetricsAddress {
  sockaddr_storage address{};
  socklen_t address_bytes = 0;
  std::string path;  // of a Unix socket; else ""
};

// ":9464" (127.0.0.1), "0.0.0.0:9464", "[::1]:9464", "localhost:9464", "unix:/run/job.sock"; port 0: any that is free.
// Names of hosts are not looked up: that may take as long as it likes.
Result<MetricsAddress> parse_metrics_address(const std::string& text);

}  // namespace whyrss
