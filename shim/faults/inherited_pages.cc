#include "shim/faults/inherited_pages.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <array>

#include "shim/events/emit.h"
#include "shim/sys/raw_io.h"

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

struct Mapping {
  std::uint64_t start, end;
  bool is_private, has_file;
};

// The lines of /proc/self/maps, one after the other.
class MapsReader {
 public:
  explicit operator bool() const noexcept { return static_cast<bool>(file_); }

  bool next(Mapping& mapping) noexcept {
    std::size_t line_end = text_.find('\n');
    while (line_end == std::string_view::npos) {
      if (!read_on()) return false;
      line_end = text_.find('\n');
    }
    mapping = parse(text_.substr(0, line_end));
    text_.remove_prefix(line_end + 1);
    return true;
  }

 private:
  // "start-end rwxp offset device inode path"
  static Mapping parse(std::string_view line) noexcept {
    Mapping mapping{};
    mapping.start = take_hex(line);
    if (!line.empty()) line.remove_prefix(1);
    mapping.end = take_hex(line);
    mapping.is_private = line.size() > 4 && line[4] == 'p';
    for (int field = 0; field < 4 && !line.empty(); ++field)
      line.remove_prefix(std::min(line.find(' '), line.size() - 1) + 1);
    mapping.has_file = !line.starts_with('0');
    return mapping;
  }

  // Behind the start of a line whose end was not read yet.
  bool read_on() noexcept {
    const std::size_t kept = text_.size() < g_maps_text.size() ? text_.size() : 0;
    std::memmove(g_maps_text.data(), text_.data(), kept);
    const long got = own_syscall(SYS_read, file_.number(), as_long(g_maps_text.data() + kept),
                                 static_cast<long>(g_maps_text.size() - kept));
    text_ = {g_maps_text.data(), kept + (got > 0 ? static_cast<std::size_t>(got) : 0)};
    return got > 0;
  }

  RawFile file_{"/proc/self/maps", O_RDONLY};
  std::string_view text_;
};

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

// Neighbouring mappings that are scanned alike.
struct Stretch {
  std::uint64_t start, end;
  bool is_anonymous;  // no page of a file can lie there
};

// To tell pages of files the kernel walks the struct page of each, which is most of the cost: in memory where there
// are none it is not asked. In small mappings that is not worth a call of their own.
constexpr std::uint64_t kWorthBytes = 256 * 1024;

// A small process is scanned as a whole and needs no list of its mappings, which takes longer than the scan.
constexpr std::uint64_t kFewPages = 2048;

// Pages of `stretch`, in address order, `most_pages` or a little less (0: all). Where it stopped; 0: it cannot be done.
std::uint64_t scan_stretch(const RawFile& pagemap, const Stretch& stretch, std::uint64_t most_pages, TakeRun take,
                           void* context) noexcept {
  ScanArgument argument{};
  argument.size = sizeof(argument);
  argument.start = stretch.start;
  argument.end = stretch.end;
  argument.vec = reinterpret_cast<std::uintptr_t>(g_regions.data());
  argument.vec_len = g_regions.size();
  argument.category_inverted = kPageZero | (stretch.is_anonymous ? 0 : kPageFile);
  argument.category_mask = kPagePresent | argument.category_inverted;
  argument.return_mask = kPagePresent;
  argument.max_pages = most_pages;
  while (argument.start < stretch.end) {
    const long found = own_syscall(SYS_ioctl, pagemap.number(), static_cast<long>(kPagemapScan), as_long(&argument));
    if (is_raw_error(found)) return 0;
    for (std::size_t index = 0; index < static_cast<std::size_t>(found); ++index)
      take(context, {.start = g_regions[index].start,
                     .page_count = (g_regions[index].end - g_regions[index].start) / kPageBytes});
    if (argument.walk_end <= argument.start) return 0;
    argument.start = argument.walk_end;
    if (most_pages != 0) break;
  }
  return argument.start;
}

}  // namespace

bool scan_by_ioctl(TakeRun take, void* context) noexcept {
  const RawFile pagemap("/proc/self/pagemap", O_RDONLY);
  if (!pagemap) return false;
  const Stretch all{.start = 0, .end = kUserEnd, .is_anonymous = false};
  const std::uint64_t scanned_end = scan_stretch(pagemap, all, kFewPages, take, context);
  if (scanned_end == 0) return false;
  if (scanned_end >= kUserEnd) return true;
  MapsReader maps;
  if (!maps) return false;
  Stretch stretch{.start = scanned_end, .end = scanned_end, .is_anonymous = false};
  for (Mapping mapping{}; maps.next(mapping) && mapping.end <= kUserEnd;) {
    if (mapping.end <= scanned_end) continue;
    mapping.start = std::max(mapping.start, scanned_end);
    const bool is_anonymous = mapping.is_private && !mapping.has_file && mapping.end - mapping.start >= kWorthBytes;
    if (is_anonymous != stretch.is_anonymous) {
      if (stretch.start < stretch.end && scan_stretch(pagemap, stretch, 0, take, context) == 0) return false;
      stretch = {.start = mapping.start, .end = mapping.start, .is_anonymous = is_anonymous};
    }
    stretch.end = mapping.end;
  }
  return stretch.start == stretch.end || scan_stretch(pagemap, stretch, 0, take, context) != 0;
}

bool scan_by_pagemap(TakeRun take, void* context) noexcept {
  const RawFile pagemap("/proc/self/pagemap", O_RDONLY);
  MapsReader maps;
  if (!pagemap || !maps) return false;
  for (Mapping mapping{}; maps.next(mapping);)
    if (mapping.is_private && mapping.end <= kUserEnd) scan_range(pagemap, mapping.start, mapping.end, take, context);
  return true;
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
