#include "collect/loop/control.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace whyrss {

std::optional<std::string> LineReader::next() {
  while (true) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (at_end_) return std::nullopt;
    std::array<char, 512> bytes;
    const ssize_t got = recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    if (got <= 0) {
      at_end_ = true;
      continue;
    }
    buffer_.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace whyrss
