#include "metrics/metrics_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

namespace whyrss {
namespace {

constexpr int kBacklog = 16;

const sockaddr* generic(const sockaddr_storage& address) { return reinterpret_cast<const sockaddr*>(&address); }

bool is_later(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

Fd make_socket(const MetricsAddress& address) {
  Fd made(socket(address.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  // Of a recording that has just ended connections may still stand: the port is free all the same.
  if (made && address.path.empty()) setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return made;
}

// What a killed collector left: a socket on which no process listens.
void remove_abandoned(const MetricsAddress& address) {
  struct stat status {};
  if (lstat(address.path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  const Fd probe = make_socket(address);
  if (probe && connect(probe.get(), generic(address.address), address.address_bytes) != 0 && errno == ECONNREFUSED)
    unlink(address.path.c_str());
}

std::string text_of_address(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (address.ss_family == AF_INET6) {
    const auto& ip6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &ip6.sin6_addr, host.data(), host.size());
    return fmt::format("[{}]:{}", host.data(), ntohs(ip6.sin6_port));
  }
  const auto& ip4 = reinterpret_cast<const sockaddr_in&>(address);
  inet_ntop(AF_INET, &ip4.sin_addr, host.data(), host.size());
  return fmt::format("{}:{}", host.data(), ntohs(ip4.sin_port));
}

}  // namespace

Result<MetricsServer> MetricsServer::listen(const MetricsAddress& address) {
  const std::string shown = address.path.empty() ? text_of_address(address.address) : address.path;
  if (!address.path.empty()) remove_abandoned(address);
  MetricsServer server(make_socket(address));
  if (!server.listener_ || bind(server.listener_.get(), generic(address.address), address.address_bytes) != 0)
    return system_error("cannot serve live figures at", shown);
  server.path_ = address.path;
  if (::listen(server.listener_.get(), kBacklog) != 0) return system_error("cannot serve live figures at", shown);
  return server;
}

MetricsServer::~MetricsServer() {
  if (listener_ && !path_.empty()) unlink(path_.c_str());
}

std::string MetricsServer::url() const {
  if (!path_.empty()) return path_;
  sockaddr_storage address{};
  socklen_t address_bytes = sizeof address;
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &address_bytes);
  return fmt::format("http://{}/metrics", text_of_address(address));
}

std::int64_t MetricsServer::wait_for(std::vector<pollfd>& entries, std::int64_t now_ns) const {
  if (now_ns < next_ns_) return next_ns_;
  entries.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  std::int64_t until_ns = std::numeric_limits<std::int64_t>::max();
  for (const Client& client : clients_) {
    const bool answers = !client.answer.empty();
    entries.push_back(
        {.fd = client.socket.get(), .events = static_cast<short>(answers ? POLLOUT : POLLIN), .revents = 0});
    until_ns = std::min(until_ns, client.until_ns);
  }
  return until_ns;
}

void MetricsServer::serve(std::int64_t now_ns, const TextOf& text_of) {
  if (now_ns < next_ns_) return;
  accept_clients(now_ns);
  if (clients_.empty()) return;
  next_ns_ = now_ns + kPauseNs;
  std::erase_if(clients_, [&](Client& client) { return now_ns >= client.until_ns || !serve_one(client, text_of); });
}

void MetricsServer::accept_clients(std::int64_t now_ns) {
  for (std::size_t count = 0; count < kMostClients; ++count) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;  // no client waits, or no descriptor is free: those that wait are taken later
    if (clients_.size() >= kMostClients) clients_.pop_front();
    clients_.push_back({.socket = std::move(socket), .until_ns = now_ns + kPatienceNs});
  }
}

bool MetricsServer::serve_one(Client& client, const TextOf& text_of) {
  if (client.answer.empty()) {
    const bool goes_on = receive(client);
    const MetricsRequest request = parse_metrics_request(client.request);
    if (request.status == 0) return goes_on;
    static const std::string kNothing;
    client.answer = render_answer(request, request.status == 200 ? text_of(request.format) : kNothing);
  }
  return send_answer(client);
}

bool MetricsServer::receive(Client& client) {
  std::array<char, kMostRequestBytes> bytes;
  const ssize_t got = recv(client.socket.get(), bytes.data(), kMostRequestBytes - client.request.size(), 0);
  if (got < 0) return is_later(errno);
  client.request.append(bytes.data(), static_cast<std::size_t>(got));
  return got > 0;
}

bool MetricsServer::send_answer(Client& client) {
  const std::string_view rest = std::string_view(client.answer).substr(client.sent_bytes);
  const ssize_t sent = send(client.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent < 0) return is_later(errno);
  client.sent_bytes += static_cast<std::size_t>(sent);
  if (client.sent_bytes < client.answer.size()) return true;
  shutdown(client.socket.get(), SHUT_WR);
  return false;
}

}  // namespace whyrss
