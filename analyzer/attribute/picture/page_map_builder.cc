#include "attribute/picture/page_map_builder.h"

#include <algorithm>

namespace whyrss {
namespace {

std::uint64_t live_page_of(std::uint64_t address) { return address & ~(kLivePageBytes - 1); }

}  // namespace

PageMap PageMapBuilder::build(const std::vector<Vma>& vmas) {
  std::ranges::sort(parts_, {}, &PageMapRun::start);
  std::vector<PageMapRun> runs;
  for (auto part = parts_.begin(); part != parts_.end();) {
    // Of the page that it shares with others, the largest part.
    const std::uint64_t page = live_page_of(part->start), page_end = page + kLivePageBytes;
    if (part->start != page || part->end < page_end) {
      auto last = part;
      while (last != parts_.end() && last->start < page_end) ++last;
      const auto bytes_here = [&](const PageMapRun& other) { return std::min(other.end, page_end) - other.start; };
      PageMapRun most = *std::max_element(
          part, last, [&](const PageMapRun& a, const PageMapRun& b) { return bytes_here(a) < bytes_here(b); });
      most.start = page;
      most.end = page_end;
      append_joined(runs, most);
      // One that reaches beyond the page goes on there.
      part = last;
      if (std::prev(last)->end > page_end) {
        part = std::prev(last);
        part->start = page_end;
      }
      continue;
    }
    PageMapRun whole = *part;
    whole.end = live_page_of(part->end);
    if (whole.start < whole.end) append_joined(runs, whole);
    if (part->end == whole.end)
      ++part;
    else
      part->start = whole.end;
  }
  PageMap map;
  auto run = runs.begin();
  for (const Vma& vma : vmas) {
    while (run != runs.end() && run->end <= vma.start) ++run;
    if (run == runs.end()) break;
    if (run->start >= vma.end) continue;
    PageMapMapping& mapping = map.mappings.emplace_back();
    mapping.start = vma.start;
    mapping.end = vma.end;
    mapping.file_offset = vma.file_offset;
    mapping.path = vma.path;
    mapping.readable = vma.readable;
    mapping.writable = vma.writable;
    mapping.executable = vma.executable;
    mapping.shared = vma.shared;
    for (; run != runs.end() && run->start < vma.end; ++run) {
      PageMapRun here = *run;
      here.end = std::min(run->end, vma.end);
      here.pages = (here.end - here.start) / kLivePageBytes;
      mapping.runs.push_back(here);
      if (run->end <= vma.end) continue;
      run->start = vma.end;
      break;
    }
  }
  return map;
}

}  // namespace whyrss
