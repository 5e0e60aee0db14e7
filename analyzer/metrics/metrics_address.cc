#include "metrics/metrics_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstring>

#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::string_view kUnix = "unix:";

template <typename Address>
MetricsAddress stored(const Address& address) {
  MetricsAddress result;
  std::memcpy(&result.address, &address, sizeof address);
  result.address_bytes = sizeof address;
  return result;
}

Error not_understood(const std::string& text) {
  return Error{fmt::format("'{}': expected :PORT, IP-ADDRESS:PORT or unix:PATH", text)};
}

Result<MetricsAddress> unix_address(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path)
    return Error{fmt::format("{}: the path of a socket has at most {} bytes", path, sizeof address.sun_path - 1)};
  std::memcpy(address.sun_path, path.data(), path.size());
  MetricsAddress result = stored(address);
  result.path = path;
  return result;
}

}  // namespace

Result<MetricsAddress> parse_metrics_address(const std::string& text) {
  if (text.starts_with(kUnix) && text.size() > kUnix.size()) return unix_address(text.substr(kUnix.size()));
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return not_understood(text);
  const auto port = parse_number<std::uint16_t>(std::string_view(text).substr(colon + 1));
  std::string host = text.substr(0, colon);
  if (!port) return not_understood(text);
  if (host.starts_with('[') && host.ends_with(']')) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(*port);
    if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address.sin6_addr) != 1)
      return not_understood(text);
    return stored(address);
  }
  if (host.empty() || host == "localhost") host = "127.0.0.1";
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(*port);
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return not_understood(text);
  return stored(address);
}

}  // namespace whyrss
