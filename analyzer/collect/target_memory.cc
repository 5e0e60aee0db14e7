#include "collect/target_memory.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <climits>

#include "support/file.h"

namespace whyrss {
namespace {

iovec remote(std::uint64_t address, std::size_t size_bytes) {
  return {.iov_base = reinterpret_cast<void*>(address), .iov_len = size_bytes};  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

Status TargetMemory::read(std::uint64_t address, std::span<std::byte> into) const {
  while (!into.empty()) {
    const iovec local{.iov_base = into.data(), .iov_len = into.size()};
    const iovec there = remote(address, into.size());
    const ssize_t size = process_vm_readv(pid_, &local, 1, &there, 1, 0);
    if (size <= 0) return system_error("cannot read the memory of", fmt::format("process {}", pid_));
    into = into.subspan(static_cast<std::size_t>(size));
    address += static_cast<std::uint64_t>(size);
  }
  return Done{};
}

std::vector<std::byte> TargetMemory::read_each(std::span<const std::uint64_t> addresses, std::size_t bytes_each) const {
  std::vector<std::byte> bytes(addresses.size() * bytes_each);
  std::vector<iovec> there;
  for (std::size_t first = 0; first < addresses.size();) {
    there.clear();
    const std::size_t count = std::min<std::size_t>(addresses.size() - first, IOV_MAX);
    for (const std::uint64_t address : addresses.subspan(first, count)) there.push_back(remote(address, bytes_each));
    const iovec local{.iov_base = bytes.data() + first * bytes_each, .iov_len = count * bytes_each};
    const ssize_t size = process_vm_readv(pid_, &local, 1, there.data(), count, 0);
    // It stops at the first element that it cannot read, in whole elements (process_vm_readv(2)).
    const std::size_t whole = size > 0 ? static_cast<std::size_t>(size) / bytes_each : 0;
    if (whole < count)
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>((first + whole) * bytes_each), bytes_each, std::byte{});
    first += std::max<std::size_t>(whole < count ? whole + 1 : whole, 1);
  }
  return bytes;
}

}  // namespace whyrss
