#include "collect/read/target_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace whyrss {
namespace {

// Few: what is left of them when a fork begins is read after it, and copied.
constexpr std::size_t kMostAtOnce = 64;

}  // namespace

// Not process_vm_readv where there are relatives: it pins the pages (FOLL_PIN), and to pin a page that a fork made
// shared the kernel copies it first (gup_must_unshare in mm/gup.c). Measured: 27 MiB of copies in a worker whose pool
// headers were read. For the others it takes a third of the time.
TargetMemory::TargetMemory(pid_t pid, std::optional<ForkCount> lone)
    : pid_(pid), lone_(lone), memory_(open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDONLY | O_CLOEXEC)) {}

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

std::size_t TargetMemory::read_many(std::span<const std::uint64_t> addresses, std::size_t bytes_each,
                                    std::span<std::byte> into) const {
  std::array<iovec, kMostAtOnce> places;
  const std::size_t count = std::min(addresses.size(), places.size());
  for (std::size_t i = 0; i < count; ++i) places[i] = {reinterpret_cast<void*>(addresses[i]), bytes_each};
  const iovec all{into.data(), count * bytes_each};
  const ssize_t size = process_vm_readv(pid_, &all, 1, places.data(), count, 0);
  return size <= 0 ? 0 : static_cast<std::size_t>(size) / bytes_each;
}

void TargetMemory::read_each(std::span<const std::uint64_t> addresses, std::size_t bytes_each,
                             std::span<std::byte> into) const {
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (lone_ && !lone_->has_moved()) i += read_many(addresses.subspan(i), bytes_each, into.subspan(i * bytes_each));
    if (i == addresses.size()) break;
    const std::span<std::byte> one = into.subspan(i * bytes_each, bytes_each);
    const ssize_t size = pread(memory_.get(), one.data(), one.size(), static_cast<off_t>(addresses[i]));
    if (size != static_cast<ssize_t>(bytes_each)) std::ranges::fill(one, std::byte{});
  }
}

}  // namespace whyrss
