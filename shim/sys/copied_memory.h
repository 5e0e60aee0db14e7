// Another thread's memory, which may be unmapped at any moment: read by copying it. Ours is the target of
// process_vm_writev, and what is read its source: a source is read as by write(2), while pages of a target are pinned,
// so that one that a fork made shared would be copied first. 0.4 to 1.3 us a call; no effect, no errno,
// async-signal-safe.
#pragma once

#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/sys/raw_io.h"

namespace whyrss::shim {

// How many bytes could be read, of all sources up to the first that is not there. Targets lie in private memory: of a
// file the kernel would change pages behind the file system's back.
inline std::size_t copy_foreign(long own_pid, std::span<const iovec> targets, std::span<const iovec> sources) noexcept {
  const long copied =
      own_syscall(SYS_process_vm_writev, own_pid, as_long(sources.data()), static_cast<long>(sources.size()),
                  as_long(targets.data()), static_cast<long>(targets.size()), 0);
  return copied > 0 ? static_cast<std::size_t>(copied) : 0;
}

// What was copied last. Per thread, zero at first. Pages: frames lie side by side, 80 to 200 bytes each, and to copy 4
// KiB takes a fifth more than to copy 8 bytes.
struct CopiedPages {
  static constexpr std::size_t kPages = 8, kBytes = 4096;
  std::array<std::uint64_t, kPages> address;  // 0: none
  std::size_t next;                           // to be replaced
  alignas(64) std::array<std::array<std::byte, kBytes>, kPages> bytes;
};

// As the readers of python_access.h: what cannot be read is zero, and `failed` is said from then on.
class CopiedReader {
 public:
  static constexpr bool kProbed = true, kForeign = true;

  CopiedReader(CopiedPages& pages, long own_pid) noexcept : pages_(pages), own_pid_(own_pid) {}

  // What was copied is not read any more.
  void forget() noexcept { pages_.address = {}; }
  // Before anything is read: reads again what was read last, in one call.
  void renew() noexcept {
    std::array<iovec, CopiedPages::kPages> targets, sources;
    std::size_t count = 0;
    for (; count < CopiedPages::kPages && pages_.address[count] != 0; ++count) {
      targets[count] = {pages_.bytes[count].data(), CopiedPages::kBytes};
      sources[count] = {reinterpret_cast<void*>(pages_.address[count]), CopiedPages::kBytes};
    }
    const std::size_t copied =
        count == 0 ? 0 : copy_foreign(own_pid_, std::span(targets).first(count), std::span(sources).first(count));
    for (std::size_t i = copied / CopiedPages::kBytes; i < CopiedPages::kPages; ++i) pages_.address[i] = 0;
  }

  // Reads one word now.
  std::uint32_t word_now(const void* base, std::size_t offset) noexcept {
    std::uint32_t word = 0;
    const iovec source{const_cast<std::byte*>(static_cast<const std::byte*>(base)) + offset, sizeof word};
    const iovec target{&word, sizeof word};
    failed_ |= copy_foreign(own_pid_, {&target, 1}, {&source, 1}) != sizeof word;
    return word;
  }

  template <class Value>
  Value load(const void* base, std::size_t offset) noexcept {
    const std::uint64_t address = reinterpret_cast<std::uint64_t>(base) + offset;
    const std::byte* page =
        (address & (alignof(Value) - 1)) == 0 ? page_at(address - address % CopiedPages::kBytes) : nullptr;
    Value value{};
    if (page != nullptr)
      __builtin_memcpy(&value, page + address % CopiedPages::kBytes, sizeof value);
    else
      failed_ = true;
    return value;
  }

  // It is known when it is copied.
  static bool has_range(const void*, std::size_t) noexcept { return true; }
  bool copy(void* into, const void* from, std::size_t size_bytes) noexcept {
    auto address = reinterpret_cast<std::uint64_t>(from);
    for (auto* to = static_cast<std::byte*>(into); size_bytes > 0 && !failed_;) {
      const std::uint64_t begin = address % CopiedPages::kBytes;
      const std::size_t part = std::min(size_bytes, CopiedPages::kBytes - begin);
      const std::byte* page = page_at(address - begin);
      failed_ = page == nullptr;
      if (page != nullptr) __builtin_memcpy(to, page + begin, part);
      to += part;
      address += part;
      size_bytes -= part;
    }
    return !failed_;
  }

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  // What was read is not what it should be.
  void fail() noexcept { failed_ = true; }

 private:
  // Page 0 is never there.
  const std::byte* page_at(std::uint64_t address) noexcept {
    for (std::size_t i = 0; i < CopiedPages::kPages; ++i)
      if (pages_.address[i] == address && address != 0) return pages_.bytes[i].data();
    const std::size_t index = pages_.next++ % CopiedPages::kPages;
    std::byte* into = pages_.bytes[index].data();
    pages_.address[index] = 0;
    const iovec target{into, CopiedPages::kBytes}, source{reinterpret_cast<void*>(address), CopiedPages::kBytes};
    if (copy_foreign(own_pid_, {&target, 1}, {&source, 1}) != CopiedPages::kBytes) return nullptr;
    pages_.address[index] = address;
    return into;
  }

  CopiedPages& pages_;
  long own_pid_;
  bool failed_ = false;
};

}  // namespace whyrss::shim
