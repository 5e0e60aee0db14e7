#include "collect/loop/uffd_handoff.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "procfs/process_stat.h"
#include "support/clock.h"
#include "support/dead_socket.h"

namespace whyrss {
namespace {

// A pool of workers is forked in one go, and none of them waits for us.
constexpr int kBacklog = 1024;
// Connections whose process was stopped before it sent anything.
constexpr std::size_t kMostSilent = 16;

// Between bind() and listen() a living one looks like a dead one.
constexpr std::int64_t kSettledS = 60;

// "whyrss.<session>.memory"
bool is_of_a_session(std::string_view name) {
  constexpr std::string_view kPrefix = "whyrss.", kSuffix = ".memory";
  constexpr std::size_t kSessionDigits = 32;
  return name.size() == kPrefix.size() + kSessionDigits + kSuffix.size() && name.starts_with(kPrefix) &&
         name.ends_with(kSuffix);
}

bool fits(const std::string& path) { return path.size() < sizeof(sockaddr_un::sun_path); }

Fd listen_at(const std::string& path) {
  Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  // The mode of the socket itself becomes that of its file (unix(7)), before anybody can see it.
  if (!listener || fchmod(listener.get(), 0600) != 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), kBacklog) != 0)
    return Fd();
  return listener;
}

enum class Received { memory, nothing_yet, other };

// The one message of a connection.
Received receive(const Fd& connection, UffdHandoff& handoff) {
  ucred peer{};
  socklen_t peer_bytes = sizeof peer;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0) return Received::other;
  handoff.pid = peer.pid;
  iovec part{.iov_base = &handoff.start_ticks, .iov_len = sizeof handoff.start_ticks};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_LEN(sizeof(int));  // room for one: the kernel keeps the others
  const ssize_t got = recvmsg(connection.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return Received::nothing_yet;
  const cmsghdr* rights = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (rights == nullptr || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS ||
      rights->cmsg_len != CMSG_LEN(sizeof(int)))
    return Received::other;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
  handoff.descriptor = Fd(descriptor);
  const bool whole = got == sizeof handoff.start_ticks && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  return whole ? Received::memory : Received::other;
}

}  // namespace

void remove_dead_sockets(const Folder& folder, std::int64_t least_age_s) {
  const auto names = folder.list();
  if (!names) return;
  const std::int64_t now_s = clock_ns(CLOCK_REALTIME) / 1'000'000'000;
  for (const std::string& name : *names)
    if (is_of_a_session(name) && now_s - folder.status_of(name).changed_s >= least_age_s)
      remove_dead_socket(folder, name);
}

Result<HandoverSocket> HandoverSocket::open(const std::string& pool_path, const std::string& recording_directory) {
  if (const auto shared_memory = Folder::open("/dev/shm")) remove_dead_sockets(*shared_memory, kSettledS);
  for (const std::string& path : {pool_path + ".memory", recording_directory + "/memory"}) {
    if (!fits(path)) continue;
    HandoverSocket result;
    result.listener_ = listen_at(path);
    if (!result.listener_) continue;
    result.path_ = path;
    return result;
  }
  return system_error("cannot listen at", recording_directory + "/memory");
}

HandoverSocket::HandoverSocket(HandoverSocket&& other) noexcept
    : listener_(std::move(other.listener_)),
      connections_(std::move(other.connections_)),
      path_(std::exchange(other.path_, {})) {}

HandoverSocket& HandoverSocket::operator=(HandoverSocket&& other) noexcept {
  std::swap(listener_, other.listener_);
  std::swap(connections_, other.connections_);
  std::swap(path_, other.path_);
  return *this;
}

HandoverSocket::~HandoverSocket() {
  if (!path_.empty()) unlink(path_.c_str());
}

void HandoverSocket::announce(trace::PoolView pool) const {
  if (!listener_) return;
  const auto status = read_file("/proc/self/status");
  const auto filters = status ? status_value(*status, "Seccomp_filters") : std::nullopt;
  pool.header->seccomp_filters = filters ? static_cast<std::uint32_t>(*filters) : UINT32_MAX;
  std::ranges::copy(path_, pool.header->handover_path.begin());
}

std::vector<UffdHandoff> HandoverSocket::take() {
  while (listener_) {
    Fd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    out_of_descriptors_ = !connection && (errno == EMFILE || errno == ENFILE);
    if (!connection) break;
    connections_.push_back(std::move(connection));
  }
  std::vector<UffdHandoff> handoff;
  std::erase_if(connections_, [&](const Fd& connection) {
    UffdHandoff memory;
    const Received received = receive(connection, memory);
    if (received == Received::memory) handoff.push_back(std::move(memory));
    return received != Received::nothing_yet;
  });
  if (connections_.size() > kMostSilent)
    connections_.erase(connections_.begin(), connections_.end() - static_cast<std::ptrdiff_t>(kMostSilent));
  return handoff;
}

}  // namespace whyrss
