#include "shim/faults/touch_descriptor.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>

namespace whyrss::shim {
namespace {

constinit std::atomic<std::int32_t> g_open{0};

bool is_event(int descriptor) noexcept {
  std::array<char, 32> name{"/proc/self/fd/"};
  std::array<char, 10> digits;
  std::size_t count = 0;
  do digits[count++] = static_cast<char>('0' + descriptor % 10);
  while ((descriptor /= 10) != 0);
  std::size_t at = std::strlen(name.data());
  while (count > 0) name[at++] = digits[--count];
  std::array<char, 64> target;
  const long size = own_syscall(SYS_readlink, as_long(name.data()), as_long(target.data()), target.size());
  return !is_raw_error(size) &&
         std::string_view(target.data(), static_cast<std::size_t>(size)) == "anon_inode:[perf_event]";
}

}  // namespace

long map_event(const void* attributes) noexcept {
  g_open.fetch_add(1, std::memory_order_seq_cst);
  long result = own_syscall(SYS_perf_event_open, as_long(attributes), 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (!is_raw_error(result)) {
    const RawFile event(result);
    result = own_syscall(SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED, event.number(), 0);
    if (is_raw_error(result)) result = -EDQUOT;
  }
  g_open.fetch_sub(1, std::memory_order_seq_cst);
  return result;
}

void close_copied_events() noexcept {
  if (g_open.exchange(0) == 0) return;
  const RawFile directory("/proc/self/fd", O_RDONLY | O_DIRECTORY);
  if (!directory) return;
  alignas(8) std::array<char, 1024> entries;
  while (true) {
    const long got = own_syscall(SYS_getdents64, directory.number(), as_long(entries.data()), entries.size());
    if (got <= 0) return;
    for (long at = 0; at < got;) {
      // struct linux_dirent64: u64 inode, s64 offset, u16 record length, u8 type, name
      const char* entry = entries.data() + at;
      std::uint16_t length = 0;
      std::memcpy(&length, entry + 16, sizeof(length));
      at += length;
      std::string_view name(entry + 19);
      if (name.starts_with('.')) continue;
      const auto descriptor = static_cast<int>(take_number(name));
      if (is_event(descriptor)) own_syscall(SYS_close, descriptor);
    }
  }
}

}  // namespace whyrss::shim
