// Is a program linked with a sanitizer runtime that must be the first library in the process? With any
// library preloaded before it, it prints "ASan runtime does not come first" and ends the program.
// Read from the program's own dynamic section alone. Allocates nothing; safe on bad files: every read is
// bounded by the caller's `read_at`, every loop by a constant.
#pragma once

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace whyrss::trace {

// As in DT_NEEDED: a name, or the path it was linked by (clang's runtimes). Runtimes that do not insist on
// coming first (libubsan) are none.
inline bool is_sanitizer_runtime(std::string_view library) noexcept {
  if (const std::size_t slash = library.rfind('/'); slash != std::string_view::npos) library.remove_prefix(slash + 1);
  for (const std::string_view start : {"libasan.", "libtsan.", "liblsan.", "libhwasan."})
    if (library.starts_with(start)) return true;
  for (const std::string_view part : {"clang_rt.asan", "clang_rt.tsan", "clang_rt.hwasan"})
    if (library.find(part) != std::string_view::npos) return true;
  return false;
}

// `read_at(std::span<char> into, std::uint64_t offset)` returns the bytes read, 0 at the end or on error.
template <class ReadAt>
class SanitizerSearch {
 public:
  SanitizerSearch(const Elf64_Ehdr& header, ReadAt read_at) noexcept : header_(header), read_at_(read_at) {}

  bool found() noexcept {
    Elf64_Phdr dynamic{};
    if (!find_segment([](const Elf64_Phdr& segment) { return segment.p_type == PT_DYNAMIC; }, dynamic)) return false;
    std::uint64_t names_address = 0;
    std::uint64_t names_bytes = 0;
    each_entry(dynamic, [&](const Elf64_Dyn& entry) {
      if (entry.d_tag == DT_STRTAB) names_address = entry.d_un.d_ptr;
      if (entry.d_tag == DT_STRSZ) names_bytes = entry.d_un.d_val;
      return false;
    });
    Elf64_Phdr holder{};
    const auto holds_names = [&](const Elf64_Phdr& segment) {
      return segment.p_type == PT_LOAD && names_address >= segment.p_vaddr &&
             names_address - segment.p_vaddr < segment.p_filesz;
    };
    if (!find_segment(holds_names, holder)) return false;
    const std::uint64_t names_offset = holder.p_offset + (names_address - holder.p_vaddr);
    return each_entry(dynamic, [&](const Elf64_Dyn& entry) {
      return entry.d_tag == DT_NEEDED && entry.d_un.d_val < names_bytes &&
             names_runtime(names_offset + entry.d_un.d_val, names_bytes - entry.d_un.d_val);
    });
  }

 private:
  static constexpr std::size_t kMaxSegments = 64;
  static constexpr std::uint64_t kMaxEntries = 1024;  // a program has some thirty
  static constexpr std::size_t kMaxNameBytes = 256;
  static constexpr std::size_t kWindowBytes = 512;  // on the stack of the caller of exec

  // Entries lie one behind the other: a window of the file holds many of them.
  template <class Type>
  bool read(Type& into, std::uint64_t offset) noexcept {
    static_assert(sizeof into <= kWindowBytes);
    if (offset < window_offset_ || offset - window_offset_ > window_bytes_ ||
        window_bytes_ - (offset - window_offset_) < sizeof into) {
      window_bytes_ = read_at_(std::span<char>(window_), offset);
      window_offset_ = offset;
    }
    if (window_bytes_ - (offset - window_offset_) < sizeof into) return false;
    std::memcpy(&into, window_.data() + (offset - window_offset_), sizeof into);
    return true;
  }

  template <class Matches>
  bool find_segment(Matches matches, Elf64_Phdr& segment) noexcept {
    if (header_.e_phentsize != sizeof segment) return false;
    for (std::size_t index = 0; index < std::min<std::size_t>(header_.e_phnum, kMaxSegments); ++index) {
      if (!read(segment, header_.e_phoff + index * sizeof segment)) return false;
      if (matches(segment)) return true;
    }
    return false;
  }

  // True as soon as `visit` says so.
  template <class Visit>
  bool each_entry(const Elf64_Phdr& dynamic, Visit visit) noexcept {
    const std::uint64_t count = std::min<std::uint64_t>(dynamic.p_filesz / sizeof(Elf64_Dyn), kMaxEntries);
    for (std::uint64_t index = 0; index < count; ++index) {
      Elf64_Dyn entry{};
      if (!read(entry, dynamic.p_offset + index * sizeof entry) || entry.d_tag == DT_NULL) return false;
      if (visit(entry)) return true;
    }
    return false;
  }

  bool names_runtime(std::uint64_t offset, std::uint64_t limit_bytes) noexcept {
    std::array<char, kMaxNameBytes> name{};
    const std::size_t size =
        read_at_(std::span<char>(name.data(), std::min<std::uint64_t>(name.size(), limit_bytes)), offset);
    return is_sanitizer_runtime({name.data(), strnlen(name.data(), std::min(size, name.size()))});
  }

  const Elf64_Ehdr& header_;
  ReadAt read_at_;
  std::array<char, kWindowBytes> window_;
  std::uint64_t window_offset_ = 0;
  std::size_t window_bytes_ = 0;
};

}  // namespace whyrss::trace
