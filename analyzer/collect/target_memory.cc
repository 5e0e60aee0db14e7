#include "collect/target_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace whyrss {

// Not process_vm_readv: it pins the pages (FOLL_PIN), and to pin a page that a fork made shared the kernel copies it
// first (gup_must_unshare in mm/gup.c). Measured: 27 MiB of copies in a worker whose pool headers were read.
TargetMemory::TargetMemory(pid_t pid)
    : pid_(pid), memory_(open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDONLY | O_CLOEXEC)) {}

Status TargetMemory::read(std::uint64_t address, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t size = pread(memory_.get(), into.data(), into.size(), static_cast<off_t>(address));
    if (size <= 0) return system_error("cannot read the memory of", fmt::format("process {}", pid_));
    into = into.subspan(static_cast<std::size_t>(size));
    address += static_cast<std::uint64_t>(size);
  }
  return Done{};
}

std::vector<std::byte> TargetMemory::read_each(std::span<const std::uint64_t> addresses, std::size_t bytes_each) const {
  std::vector<std::byte> bytes(addresses.size() * bytes_each);
  read_each(addresses, bytes_each, bytes);
  return bytes;
}

void TargetMemory::read_each(std::span<const std::uint64_t> addresses, std::size_t bytes_each,
                             std::span<std::byte> into) const {
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const std::span<std::byte> one = into.subspan(i * bytes_each, bytes_each);
    const ssize_t size = pread(memory_.get(), one.data(), one.size(), static_cast<off_t>(addresses[i]));
    if (size != static_cast<ssize_t>(bytes_each)) std::ranges::fill(one, std::byte{});
  }
}

}  // namespace whyrss
