// A mapping as the program asked for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace whyrss::shim {

struct Mapping {
  const void* address;
  std::size_t size_bytes;
  int prot, flags, fd;
  std::uint64_t file_offset;
  int segment = -1;  // id, of a SysV segment
};

}  // namespace whyrss::shim
