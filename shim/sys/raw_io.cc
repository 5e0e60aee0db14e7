#include "shim/sys/raw_io.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>

namespace whyrss::shim {

RawFile::RawFile(const char* path, int flags) noexcept
    : descriptor_(visit_ ? static_cast<int>(raw_syscall(SYS_openat, AT_FDCWD, as_long(path), flags | O_CLOEXEC))
                         : -EPERM) {}

RawFile::~RawFile() {
  if (descriptor_ >= 0) raw_syscall(SYS_close, descriptor_);
}

std::size_t RawFile::read_at(std::span<char> into, std::uint64_t offset) const noexcept {
  const long got = raw_syscall(SYS_pread64, descriptor_, as_long(into.data()), static_cast<long>(into.size()),
                               static_cast<long>(offset));
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

std::size_t RawFile::read_all(std::span<char> into) const noexcept {
  std::size_t filled = 0;
  while (filled < into.size()) {
    const long got =
        raw_syscall(SYS_read, descriptor_, as_long(into.data() + filled), static_cast<long>(into.size() - filled));
    if (got <= 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

std::string_view read_file(const char* path, std::span<char> buffer) noexcept {
  const RawFile file(path, O_RDONLY);
  if (!file) return {};
  return {buffer.data(), file.read_all(buffer)};
}

Text& Text::add(std::string_view piece) noexcept {
  const std::size_t room = sizeof(bytes_) - 1 - size_;
  const std::size_t taken = piece.size() < room ? piece.size() : room;
  cut_ = cut_ || taken < piece.size();
  if (taken > 0) std::memcpy(bytes_ + size_, piece.data(), taken);
  size_ += taken;
  bytes_[size_] = '\0';
  return *this;
}

Text& Text::add(std::uint64_t number) noexcept {
  char digits[20];
  std::size_t at = sizeof(digits);
  do {
    digits[--at] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  return add(std::string_view(digits + at, sizeof(digits) - at));
}

std::uint64_t take_number(std::string_view& text) noexcept {
  std::uint64_t number = 0;
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    number = number * 10 + static_cast<std::uint64_t>(text.front() - '0');
    text.remove_prefix(1);
  }
  return number;
}

void complain(std::string_view what, std::string_view detail) noexcept {
  Text line;
  line.add("whyrss: ").add(what);
  if (!detail.empty()) line.add(": ").add(detail);
  line.add("\n");
  own_syscall(SYS_write, 2, as_long(line.c_str()), static_cast<long>(line.view().size()));
}

ResidentPages read_resident_pages() noexcept {
  char buffer[128];
  std::string_view text = read_file("/proc/self/statm", buffer);
  const auto take_next = [&]() noexcept -> std::uint64_t {
    if (text.empty()) return 0;
    text.remove_prefix(1);
    return take_number(text);
  };
  take_number(text);
  const std::uint64_t all = take_next();
  return {.all = all, .shared = take_next()};
}

std::uint64_t resident_pages() noexcept { return read_resident_pages().all; }

std::uint64_t minor_faults() noexcept {
  rusage usage{};
  own_syscall(SYS_getrusage, RUSAGE_SELF, as_long(&usage));
  return static_cast<std::uint64_t>(usage.ru_minflt);
}

namespace {

// Of /proc/self/stat, a number; the fields are numbered from 1.
std::uint64_t stat_field(int number) noexcept {
  char buffer[1024];
  std::string_view text = read_file("/proc/self/stat", buffer);
  const std::size_t name_end = text.rfind(')');  // the name may hold spaces and parentheses
  if (name_end == std::string_view::npos) return 0;
  text.remove_prefix(name_end);
  for (int field = 2; field < number; ++field) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return 0;
    text.remove_prefix(space + 1);
  }
  return take_number(text);
}

}  // namespace

std::uint64_t process_start_ticks() noexcept { return stat_field(22); }

std::uint64_t thread_count() noexcept { return stat_field(20); }

}  // namespace whyrss::shim
