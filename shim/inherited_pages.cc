#include "shim/inherited_pages.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <array>

#include "shim/emit.h"
#include "shim/raw_io.h"

namespace whyrss::shim {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kUserEnd = 0x7ffffffff000;  // end of a user address space of 47 bits

// linux/fs.h of Linux 6.7; Debian 12's headers do not have it.
struct PageRegion {
  std::uint64_t start, end, categories;
};
struct ScanArgument {
  std::uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  std::uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
constexpr std::uint64_t kPageFile = 1 << 2;
constexpr std::uint64_t kPagePresent = 1 << 3;
constexpr std::uint64_t kPageZero = 1 << 5;
constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanArgument);

// Documentation/admin-guide/mm/pagemap.rst
constexpr std::uint64_t kEntryPresent = 1ULL << 63;
constexpr std::uint64_t kEntryFileOrShared = 1ULL << 61;

// A fork child is alone in its memory until it gets back to the program, so one buffer is enough.
constinit std::array<PageRegion, 512> g_regions{};
constinit std::array<std::uint64_t, 1024> g_entries{};
constinit std::array<char, 8192> g_maps_text{};

constexpr std::uint32_t kRunsPerRecord = 500;

// Collects runs into InheritedRecords, joining neighbours.
class RunWriter {
 public:
  explicit RunWriter(ThreadState& thread) noexcept : thread_(thread) {}
  static void take(void* self, trace::PageRun run) noexcept { static_cast<RunWriter*>(self)->add(run); }

  void finish() noexcept { write(true); }

 private:
  void add(trace::PageRun run) noexcept {
    if (count_ > 0) {
      trace::PageRun& last = runs_[count_ - 1];
      if (last.start + last.page_count * kPageBytes == run.start) {
        last.page_count += run.page_count;
        return;
      }
    }
    if (count_ == kRunsPerRecord) write(false);
    runs_[count_++] = run;
  }

  void write(bool complete) noexcept {
    const std::size_t runs_bytes = count_ * sizeof(trace::PageRun);
    const std::size_t size_bytes = sizeof(trace::InheritedRecord) + runs_bytes;
    std::byte* bytes = trace::reserve(thread_.writer, thread_.lease, size_bytes);
    if (bytes != nullptr) {
      const trace::InheritedRecord record{.header = header_of(trace::RecordKind::inherited, size_bytes),
                                          .run_count = count_,
                                          .complete = complete ? 1U : 0U};
      std::memcpy(bytes, &record, sizeof(record));
      std::memcpy(bytes + sizeof(record), runs_.data(), runs_bytes);
      trace::publish(thread_.lease, size_bytes);
    }
    count_ = 0;
  }

  ThreadState& thread_;
  std::uint32_t count_ = 0;
  static constinit std::array<trace::PageRun, kRunsPerRecord> runs_;
};
constinit std::array<trace::PageRun, kRunsPerRecord> RunWriter::runs_{};

std::uint64_t take_hex(std::string_view& text) noexcept {
  std::uint64_t number = 0;
  while (!text.empty()) {
    const char letter = text.front();
    if (letter >= '0' && letter <= '9')
      number = number << 4 | static_cast<std::uint64_t>(letter - '0');
    else if (letter >= 'a' && letter <= 'f')
      number = number << 4 | static_cast<std::uint64_t>(letter - 'a' + 10);
    else
      break;
    text.remove_prefix(1);
  }
  return number;
}

void scan_range(const RawFile& pagemap, std::uint64_t start, std::uint64_t end, TakeRun take, void* context) noexcept {
  for (std::uint64_t at = start; at < end;) {
    const std::uint64_t pages = std::min<std::uint64_t>((end - at) / kPageBytes, g_entries.size());
    const std::span<char> bytes(reinterpret_cast<char*>(g_entries.data()), pages * sizeof(std::uint64_t));
    const std::size_t got = pagemap.read_at(bytes, at / kPageBytes * sizeof(std::uint64_t)) / sizeof(std::uint64_t);
    if (got == 0) return;
    for (std::size_t index = 0; index < got; ++index)
      if ((g_entries[index] & kEntryPresent) != 0 && (g_entries[index] & kEntryFileOrShared) == 0)
        take(context, {.start = at + index * kPageBytes, .page_count = 1});
    at += got * kPageBytes;
  }
}

}  // namespace

bool scan_by_ioctl(TakeRun take, void* context) noexcept {
  const RawFile pagemap("/proc/self/pagemap", O_RDONLY);
  if (!pagemap) return false;
  ScanArgument argument{};
  argument.size = sizeof(argument);
  argument.end = kUserEnd;
  argument.vec = reinterpret_cast<std::uintptr_t>(g_regions.data());
  argument.vec_len = g_regions.size();
  argument.category_mask = kPagePresent | kPageFile | kPageZero;
  argument.category_inverted = kPageFile | kPageZero;
  argument.return_mask = kPagePresent;
  while (argument.start < kUserEnd) {
    const long found = raw_syscall(SYS_ioctl, pagemap.number(), static_cast<long>(kPagemapScan), as_long(&argument));
    if (is_raw_error(found)) return false;
    for (std::size_t index = 0; index < static_cast<std::size_t>(found); ++index)
      take(context, {.start = g_regions[index].start,
                     .page_count = (g_regions[index].end - g_regions[index].start) / kPageBytes});
    if (argument.walk_end <= argument.start) return false;
    argument.start = argument.walk_end;
  }
  return true;
}

bool scan_by_pagemap(TakeRun take, void* context) noexcept {
  const RawFile pagemap("/proc/self/pagemap", O_RDONLY);
  const RawFile maps("/proc/self/maps", O_RDONLY);
  if (!pagemap || !maps) return false;
  std::size_t kept = 0;  // the start of a line whose end was not read yet
  while (true) {
    const long got = raw_syscall(SYS_read, maps.number(), as_long(g_maps_text.data() + kept),
                                 static_cast<long>(g_maps_text.size() - kept));
    if (got <= 0) return true;
    std::string_view text(g_maps_text.data(), kept + static_cast<std::size_t>(got));
    for (std::size_t line_end = text.find('\n'); line_end != std::string_view::npos; line_end = text.find('\n')) {
      std::string_view line(text.data(), line_end);
      const std::uint64_t start = take_hex(line);
      if (!line.empty()) line.remove_prefix(1);
      const std::uint64_t end = take_hex(line);
      const bool is_private = line.size() > 4 && line[4] == 'p';
      if (is_private && end <= kUserEnd) scan_range(pagemap, start, end, take, context);
      text.remove_prefix(line_end + 1);
    }
    kept = text.size() < g_maps_text.size() ? text.size() : 0;
    std::memmove(g_maps_text.data(), text.data(), kept);
  }
}

void report_inherited_pages(ThreadState& thread) noexcept {
  RunWriter runs(thread);
  if (scan_by_ioctl(RunWriter::take, &runs) || scan_by_pagemap(RunWriter::take, &runs)) {
    runs.finish();
    return;
  }
  emit_text(thread, trace::RecordKind::note, 0,
            "the pages inherited at fork are not known: /proc/self/pagemap cannot be read");
}

}  // namespace whyrss::shim
