// Calls that bring data into the program's memory. Fresh memory becomes resident there within the kernel, where no
// page-fault event is raised. They are cancellation points, may be interrupted and left by longjmp, and may be called
// in signal handlers: nothing is held while the real function runs.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "shim/events/caller.h"
#include "shim/faults/kernel_faults.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

// What readv and recvmsg may fill is known only when the kernel has read it: taken to be what the last one filled.
constexpr std::size_t kLeastVectorBytes = 16 * 1024, kFirstVectorBytes = 64 * 1024;

[[gnu::always_inline]] inline std::uint32_t weight_of(std::size_t wanted_bytes) noexcept {
  if (wanted_bytes < kSmallestMeasuredRead || !g_kernel_faults.counted.load(std::memory_order_acquire)) return 0;
  return draw_read_weight(wanted_bytes);
}

[[gnu::always_inline]] inline std::size_t measured_bytes(ssize_t filled) noexcept {
  return filled < static_cast<ssize_t>(kSmallestMeasuredRead) ? 0 : static_cast<std::size_t>(filled);
}

// Runs a call that fills `buffer`.
template <class Call>
[[gnu::always_inline]] inline ssize_t fill(void* buffer, std::size_t wanted_bytes, Call call) {
  const std::uint32_t weight = weight_of(wanted_bytes);
  if (weight == 0) [[likely]]
    return call();
  KernelFaults faults(weight);
  const ssize_t filled = call();
  if (const std::size_t size_bytes = measured_bytes(filled); size_bytes != 0) {
    faults.end();
    faults.log(caller_here(), buffer, size_bytes);
  }
  return filled;
}

std::uint32_t weight_of_vector() noexcept {
  const std::size_t last_bytes = thread_state().last_vector_bytes;
  return weight_of(last_bytes == 0 ? kFirstVectorBytes : std::max(last_bytes, kLeastVectorBytes));
}

std::size_t measured_vector_bytes(ssize_t filled) noexcept {
  if (filled > 0) thread_state().last_vector_bytes = static_cast<std::size_t>(filled);
  return measured_bytes(filled);
}

template <class Call>
[[gnu::always_inline]] inline ssize_t fill_vector(const iovec* buffers, int count, Call call) {
  KernelFaults faults(weight_of_vector());
  const ssize_t filled = call();
  const std::size_t size_bytes = measured_vector_bytes(filled);
  if (size_bytes == 0) return filled;
  faults.end();
  faults.report_vector(caller_here(), buffers, static_cast<std::size_t>(count), size_bytes);
  return filled;
}

template <class Call>
[[gnu::always_inline]] inline std::size_t fill_items(void* buffer, std::size_t size, std::size_t count, Call call) {
  std::size_t wanted_bytes = 0;
  if (__builtin_mul_overflow(size, count, &wanted_bytes)) return call();
  const std::uint32_t weight = weight_of(wanted_bytes);
  if (weight == 0) [[likely]]
    return call();
  KernelFaults faults(weight);
  const std::size_t items = call();
  if (const std::size_t size_bytes = measured_bytes(static_cast<ssize_t>(items * size)); size_bytes != 0) {
    faults.end();
    faults.log(caller_here(), buffer, size_bytes);
  }
  return items;
}

[[gnu::always_inline]] inline ssize_t read_observed(int fd, void* buffer, std::size_t size) {
  resolve_real();
  return fill(buffer, size, [=] { return real.read(fd, buffer, size); });
}

[[gnu::always_inline]] inline ssize_t pread_observed(int fd, void* buffer, std::size_t size, off64_t offset) {
  resolve_real();
  return fill(buffer, size, [=] { return real.pread64(fd, buffer, size, offset); });
}

}  // namespace
}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY ssize_t read(int fd, void* buffer, std::size_t size) { return read_observed(fd, buffer, size); }

// NOLINTBEGIN(readability-identifier-naming): libc's names
WHYRSS_ENTRY ssize_t __read(int fd, void* buffer, std::size_t size) { return read_observed(fd, buffer, size); }

WHYRSS_ENTRY ssize_t pread(int fd, void* buffer, std::size_t size, off_t offset) {
  return pread_observed(fd, buffer, size, offset);
}

WHYRSS_ENTRY ssize_t pread64(int fd, void* buffer, std::size_t size, off64_t offset) {
  return pread_observed(fd, buffer, size, offset);
}

WHYRSS_ENTRY ssize_t __pread64(int fd, void* buffer, std::size_t size, off64_t offset) {
  return pread_observed(fd, buffer, size, offset);
}

WHYRSS_ENTRY ssize_t readv(int fd, const iovec* buffers, int count) {
  resolve_real();
  return fill_vector(buffers, count, [=] { return real.readv(fd, buffers, count); });
}

WHYRSS_ENTRY ssize_t preadv(int fd, const iovec* buffers, int count, off_t offset) {
  resolve_real();
  return fill_vector(buffers, count, [=] { return real.preadv64(fd, buffers, count, offset); });
}

WHYRSS_ENTRY ssize_t preadv64(int fd, const iovec* buffers, int count, off64_t offset) {
  resolve_real();
  return fill_vector(buffers, count, [=] { return real.preadv64(fd, buffers, count, offset); });
}

WHYRSS_ENTRY ssize_t preadv2(int fd, const iovec* buffers, int count, off_t offset, int flags) {
  resolve_real();
  return fill_vector(buffers, count, [=] { return real.preadv64v2(fd, buffers, count, offset, flags); });
}

WHYRSS_ENTRY ssize_t preadv64v2(int fd, const iovec* buffers, int count, off64_t offset, int flags) {
  resolve_real();
  return fill_vector(buffers, count, [=] { return real.preadv64v2(fd, buffers, count, offset, flags); });
}

WHYRSS_ENTRY ssize_t recv(int socket, void* buffer, std::size_t size, int flags) {
  resolve_real();
  return fill(buffer, size, [=] { return real.recv(socket, buffer, size, flags); });
}

WHYRSS_ENTRY ssize_t recvfrom(int socket, void* buffer, std::size_t size, int flags, sockaddr* from,
                              socklen_t* from_size) {
  resolve_real();
  return fill(buffer, size, [=] { return real.recvfrom(socket, buffer, size, flags, from, from_size); });
}

WHYRSS_ENTRY ssize_t recvmsg(int socket, msghdr* message, int flags) {
  resolve_real();
  KernelFaults faults(weight_of_vector());
  const ssize_t filled = real.recvmsg(socket, message, flags);
  const std::size_t size_bytes = measured_vector_bytes(filled);
  if (size_bytes == 0) return filled;
  faults.end();
  faults.report_message(caller_here(), message, size_bytes);
  return filled;
}

WHYRSS_ENTRY std::size_t fread(void* buffer, std::size_t size, std::size_t count, _IO_FILE* file) {
  resolve_real();
  return fill_items(buffer, size, count, [=] { return real.fread(buffer, size, count, file); });
}

WHYRSS_ENTRY std::size_t fread_unlocked(void* buffer, std::size_t size, std::size_t count, _IO_FILE* file) {
  resolve_real();
  return fill_items(buffer, size, count, [=] { return real.fread_unlocked(buffer, size, count, file); });
}

// What _FORTIFY_SOURCE makes of them: the program ends where the data would not fit.
WHYRSS_ENTRY ssize_t __read_chk(int fd, void* buffer, std::size_t size, std::size_t room) {
  resolve_real();
  return fill(buffer, size, [=] { return real.__read_chk(fd, buffer, size, room); });
}

WHYRSS_ENTRY ssize_t __pread_chk(int fd, void* buffer, std::size_t size, off_t offset, std::size_t room) {
  resolve_real();
  return fill(buffer, size, [=] { return real.__pread64_chk(fd, buffer, size, offset, room); });
}

WHYRSS_ENTRY ssize_t __pread64_chk(int fd, void* buffer, std::size_t size, off64_t offset, std::size_t room) {
  resolve_real();
  return fill(buffer, size, [=] { return real.__pread64_chk(fd, buffer, size, offset, room); });
}

WHYRSS_ENTRY ssize_t __recv_chk(int socket, void* buffer, std::size_t size, std::size_t room, int flags) {
  resolve_real();
  return fill(buffer, size, [=] { return real.__recv_chk(socket, buffer, size, room, flags); });
}

WHYRSS_ENTRY ssize_t __recvfrom_chk(int socket, void* buffer, std::size_t size, std::size_t room, int flags,
                                    sockaddr* from, socklen_t* from_size) {
  resolve_real();
  return fill(buffer, size, [=] { return real.__recvfrom_chk(socket, buffer, size, room, flags, from, from_size); });
}

WHYRSS_ENTRY std::size_t __fread_chk(void* buffer, std::size_t room, std::size_t size, std::size_t count,
                                     _IO_FILE* file) {
  resolve_real();
  return fill_items(buffer, size, count, [=] { return real.__fread_chk(buffer, room, size, count, file); });
}

WHYRSS_ENTRY std::size_t __fread_unlocked_chk(void* buffer, std::size_t room, std::size_t size, std::size_t count,
                                              _IO_FILE* file) {
  resolve_real();
  return fill_items(buffer, size, count, [=] { return real.__fread_unlocked_chk(buffer, room, size, count, file); });
}
// NOLINTEND(readability-identifier-naming)
