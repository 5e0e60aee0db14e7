#include "collect/read/huge_pages.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "collect/read/append_bytes.h"
#include "shim/trace/recording_format.h"
#include "support/page_size.h"

namespace whyrss {
namespace {

using trace::HugePage;
using trace::PageBits;

std::vector<std::uint64_t> huge_pages(const PageWalk& walk) {
  std::vector<std::uint64_t> starts;
  for (const WalkedVma& vma : walk.vmas) {
    if (vma.vma.backing != trace::Backing::anonymous || (vma.vma.perms & trace::VmaPerms::shared) != 0) continue;
    std::uint64_t at = vma.vma.start;
    for (const trace::WalkRun& run : vma.runs) {
      const std::uint64_t end = at + run.page_count * kPageBytes;
      if ((run.bits & PageBits::huge) != 0 && is_counted(run.bits) && at % HugePage::bytes == 0)
        for (; at + HugePage::bytes <= end; at += HugePage::bytes) starts.push_back(at);
      at = end;
    }
  }
  return starts;
}

bool holds_zeros(std::span<const std::byte> page) {
  return page.front() == std::byte{} && std::memcmp(page.data(), page.data() + 1, page.size() - 1) == 0;
}

HugePage inspect(std::uint64_t start, std::span<const std::byte> bytes) {
  HugePage page{.start = start, .zero = {}};
  for (std::size_t i = 0; i < bytes.size() / kPageBytes; ++i)
    if (holds_zeros(bytes.subspan(i * kPageBytes, kPageBytes))) page.zero.at(i / 64) |= std::uint64_t{1} << (i % 64);
  return page;
}

}  // namespace

bool has_huge_pages(const PageWalk& walk) { return !huge_pages(walk).empty(); }

std::vector<std::byte> inspect_huge_pages(const TargetMemory& memory, const PageWalk& walk) {
  const std::vector<std::uint64_t> starts = huge_pages(walk);
  const std::size_t stride = std::max<std::size_t>((starts.size() + kMostInspected - 1) / kMostInspected, 1);
  std::vector<std::byte> payload, bytes(HugePage::bytes);
  append_value(payload,
               trace::HugePagesHeader{
                   .walk_end_ns = walk.header.end_ns, .stride = static_cast<std::uint32_t>(stride), .reserved = 0});
  // No fixed start: what is laid out at equal distances must not be seen, or missed, every time.
  for (std::size_t i = walk.header.end_ns % stride; i < starts.size(); i += stride)
    if (memory.read(starts[i], bytes)) append_value(payload, inspect(starts[i], bytes));
  return payload;
}

}  // namespace whyrss
