#include "support/dead_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace whyrss {
namespace {

bool nobody_listens(const Folder& folder, const std::string& name) {
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // By the descriptor: the directory's own path may be too long for a socket's address.
  const std::string path = fmt::format("/proc/self/fd/{}/{}", folder.fd(), name);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!socket || path.size() >= sizeof address.sun_path) return false;
  std::ranges::copy(path, address.sun_path);
  const bool connected = connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  return !connected && errno == ECONNREFUSED;
}

}  // namespace

bool remove_dead_socket(const Folder& folder, const std::string& name) {
  const EntryStatus status = folder.status_of(name);
  if (status.kind != EntryKind::socket || status.owner != geteuid()) return false;
  return nobody_listens(folder, name) && folder.remove(name, status.identity);
}

}  // namespace whyrss
