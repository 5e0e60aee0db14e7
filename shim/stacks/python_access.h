// How the interpreter's structures are read: by plain loads, or, where a pointer may lead anywhere, after a
// walk each page; another thread's by copies (copied_memory.h). One walk serves them all (python_walk.cc), compiled for
// each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "shim/stacks/python_interpreter.h"
#include "shim/sys/readable_page.h"

namespace whyrss::shim {

// In hooks: the interpreter called out, its structures are consistent.
class DirectReader {
 public:
  static constexpr bool kProbed = false, kForeign = false;

  template <class Value>
  Value load(const void* base, std::size_t offset) noexcept {
    return load_at<Value>(base, offset);
  }
  [[nodiscard]] static constexpr bool failed() noexcept { return false; }
};

// Anywhere else. What cannot be read is zero, and `failed` is said from then on.
class ProbedReader {
 public:
  static constexpr bool kProbed = true, kForeign = false;

  template <class Value>
  Value load(const void* base, std::size_t offset) noexcept {
    const std::uint64_t address = reinterpret_cast<std::uint64_t>(base) + offset;
    if ((address & (alignof(Value) - 1)) != 0 || !can_read(page_of(address))) {
      failed_ = true;
      return Value{};
    }
    return load_at<Value>(base, offset);
  }

  // Whether a range can be read; remembered like a failed load.
  bool has_range(const void* start, std::size_t size_bytes) noexcept {
    const auto first = reinterpret_cast<std::uint64_t>(start);
    if (size_bytes == 0) return true;
    const std::uint64_t last = first + size_bytes - 1;
    bool readable = last >= first;
    for (std::uint64_t page = page_of(first); readable && page <= last && page >= page_of(first); page += kPageBytes)
      readable = can_read(page);
    failed_ |= !readable;
    return readable;
  }

  // Of a range that can be read.
  static bool copy(void* into, const void* from, std::size_t size_bytes) noexcept {
    __builtin_memcpy(into, from, size_bytes);
    return true;
  }

  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  // A page seen once stays readable for the rest of this capture: what lies on it belongs to this thread's
  // own frames and the code they run. Page 0 is never readable, so that zero means: nothing here.
  bool can_read(std::uint64_t page) noexcept {
    std::uint64_t& known = known_pages_[page / kPageBytes % known_pages_.size()];
    if (known == page && page != 0) return true;
    if (!is_page_readable(page)) return false;
    known = page;
    return true;
  }

  std::array<std::uint64_t, 16> known_pages_{};
  bool failed_ = false;
};

template <class Reader>
bool is_of_type(Reader& reader, const void* object, const std::byte* type) noexcept {
  return object != nullptr && reader.template load<const std::byte*>(object, g_python.layout->object_type) == type;
}

}  // namespace whyrss::shim
