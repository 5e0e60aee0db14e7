#include "collect/read/lazy_free.h"

#include <fmt/format.h>

#include <span>

#include "collect/read/append_bytes.h"
#include "procfs/smaps.h"
#include "shim/trace/recording_format.h"
#include "support/clock.h"
#include "support/file.h"

namespace whyrss {

std::optional<LazyFreeReading> read_lazy_free(pid_t pid, const PageWalk& walk) {
  if ((walk.header.flags & trace::WalkFlags::smaps_only) != 0) return std::nullopt;  // says of no page that it is there
  const auto text = read_file(fmt::format("/proc/{}/smaps", pid));
  if (!text) return std::nullopt;
  const std::vector<SmapsEntry> entries = parse_smaps(*text);
  // Of a process that ends meanwhile the kernel tells no more: the last mapping, mostly [vsyscall], is missing.
  if (entries.empty() || walk.vmas.empty() || entries.back().range.end != walk.vmas.back().vma.end) return std::nullopt;
  LazyFreeReading reading;
  append_value(reading.payload, trace::LazyFreeHeader{.walk_end_ns = walk.header.end_ns,
                                                      .read_ns = static_cast<std::uint64_t>(monotonic_ns())});
  for (const SmapsEntry& entry : entries) {
    if (entry.lazy_free_bytes == 0) continue;
    reading.any = true;
    append_value(reading.payload, trace::LazyFreeMapping{.start = entry.range.start,
                                                         .end = entry.range.end,
                                                         .bytes = static_cast<std::uint64_t>(entry.lazy_free_bytes)});
  }
  return reading;
}

}  // namespace whyrss
