#include "shim/faults/write_tracking.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "shim/events/emit.h"
#include "shim/events/session_state.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

constexpr std::uint64_t kNotKnown = UINT64_MAX;

std::uint64_t seccomp_filters() noexcept {
  static constinit std::array<char, 4096> text{};  // once in a process: no other thread is here
  const std::string_view status = read_file("/proc/self/status", text);
  constexpr std::string_view kKey = "\nSeccomp_filters:\t";  // Linux 5.9
  const std::size_t at = status.find(kKey);
  if (at == std::string_view::npos) return kNotKnown;
  std::string_view number = status;
  number.remove_prefix(at + kKey.size());  // substr may throw, and that needs libstdc++
  return take_number(number);
}

// -errno, or 0.
long send_descriptor(int socket, int descriptor, std::uint64_t start_ticks) noexcept {
  iovec part{.iov_base = &start_ticks, .iov_len = sizeof(start_ticks)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  const long sent = own_syscall(SYS_sendmsg, socket, as_long(&message), MSG_DONTWAIT | MSG_NOSIGNAL);
  return is_raw_error(sent) ? sent : 0;
}

long hand_over(const trace::PoolHeader& pool, std::uint64_t start_ticks, std::string_view& failed) noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  static_assert(sizeof(address.sun_path) == sizeof(pool.handover_path));
  std::memcpy(address.sun_path, pool.handover_path.data(), sizeof(address.sun_path) - 1);
  failed = "userfaultfd: ";
  const RawFile memory(own_syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
  if (!memory) return memory.number();
  failed = "socket: ";
  const RawFile socket(own_syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return socket.number();
  failed = "connect: ";
  const long connected = own_syscall(SYS_connect, socket.number(), as_long(&address), sizeof(address));
  if (is_raw_error(connected)) return connected;
  failed = "sendmsg: ";
  return send_descriptor(socket.number(), memory.number(), start_ticks);
}

std::string_view name_of(long error) noexcept {
  switch (-error) {
    case EPERM:
      return "EPERM";
    case EACCES:
      return "EACCES";
    case ENOSYS:
      return "ENOSYS";
    case EMFILE:
      return "EMFILE, no descriptor is left";
    case ENFILE:
      return "ENFILE, no file is left";
    case ENOENT:
      return "ENOENT, the collector cannot be reached";
    case ECONNREFUSED:
      return "ECONNREFUSED, no collector runs";
    case EAGAIN:
      return "EAGAIN, the collector is behind";
    default:
      return "refused";
  }
}

void note_untracked(ThreadState& thread, std::string_view what, std::string_view why) noexcept {
  // Of each process: the collector need not wait for it.
  emit_text(thread, trace::RecordKind::no_uffd_handoff, 0, {});
  static constinit std::atomic<bool> noted{false};  // fork children inherit it
  if (noted.exchange(true)) return;
  std::array<char, 160> text;
  std::size_t size = 0;
  for (const std::string_view piece : {std::string_view("writes since fork are not tracked: "), what, why}) {
    const std::size_t taken = std::min(piece.size(), text.size() - size);
    std::memcpy(text.data() + size, piece.data(), taken);
    size += taken;
  }
  emit_text(thread, trace::RecordKind::note, 0, {text.data(), size});
}

}  // namespace

void hand_off_uffd(ThreadState& thread) noexcept {
  const Session& self = session();
  const trace::PoolHeader& pool = *self.pool.header;
  if (trace::is_kernel_closed() || pool.handover_path[0] == '\0' || self.control->has_uffd_handoff.exchange(1) != 0)
    return;
  const std::uint64_t filters = seccomp_filters();
  if (filters == kNotKnown) return note_untracked(thread, "/proc/self/status cannot be read", {});
  if (filters != pool.seccomp_filters) return note_untracked(thread, "a seccomp filter may forbid it", {});
  std::string_view failed;
  const long error = hand_over(pool, thread.writer.start_ticks, failed);
  if (error != 0) note_untracked(thread, failed, name_of(error));
}

}  // namespace whyrss::shim
