// Answers scrapes between all else that the collector does: it never waits for a client, and what clients can make it
// do is bounded.
//
// Rate         connections are served at most 100 times a second (kPauseNs), so that a client that sends byte by byte,
//              or connects again and again, does not keep the collector from its work.
// Memory       kMostClients connections, kMostRequestBytes of a request each. One more replaces the oldest.
// Slow clients have kPatienceNs from their connection to the last byte of the answer.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "metrics/metrics_address.h"
#include "metrics/metrics_request.h"
#include "support/file.h"

namespace whyrss {

class MetricsServer {
 public:
  static constexpr std::size_t kMostClients = 16;
  static constexpr std::int64_t kPauseNs = 10'000'000;
  static constexpr std::int64_t kPatienceNs = 5'000'000'000;

  using TextOf = std::function<const std::string&(MetricsFormat)>;

  static Result<MetricsServer> listen(const MetricsAddress& address);
  MetricsServer(MetricsServer&&) = default;
  MetricsServer& operator=(MetricsServer&&) = delete;
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  ~MetricsServer();  // removes the socket's file

  // "http://127.0.0.1:9464/metrics"; of a Unix socket its path.
  [[nodiscard]] std::string url() const;

  // Adds what is to be waited for, and returns until when at the latest; INT64_MAX: no matter.
  std::int64_t wait_for(std::vector<pollfd>& entries, std::int64_t now_ns) const;
  // Does what can be done at once.
  void serve(std::int64_t now_ns, const TextOf& text_of);

  [[nodiscard]] std::size_t client_count() const { return clients_.size(); }

 private:
  struct Client {
    Fd socket;
    std::int64_t until_ns = 0;
    std::string request{}, answer{};
    std::size_t sent_bytes = 0;
  };

  explicit MetricsServer(Fd listener) : listener_(std::move(listener)) {}
  void accept_clients(std::int64_t now_ns);
  // Each is false when the client is done with.
  static bool serve_one(Client& client, const TextOf& text_of);
  static bool receive(Client& client);
  static bool send_answer(Client& client);

  Fd listener_;
  std::string path_;  // of a Unix socket
  std::deque<Client> clients_;
  std::int64_t next_ns_ = 0;  // not before
};

}  // namespace whyrss
