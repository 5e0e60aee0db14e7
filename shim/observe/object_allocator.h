// PyMemAllocatorEx of CPython: how one of its memory domains is served.
#pragma once

#include <cstddef>

namespace whyrss::shim {

struct ObjectAllocator {
  void* context;
  void* (*allocate)(void* context, std::size_t size);
  void* (*allocate_zeroed)(void* context, std::size_t count, std::size_t size);
  void* (*resize)(void* context, void* object, std::size_t size);
  void (*release)(void* context, void* object);
};

}  // namespace whyrss::shim
