#include "decode/huge_zeros.h"

#include <algorithm>
#include <limits>

#include "shim/trace/recording_format.h"
#include "support/page_size.h"

namespace whyrss {
namespace {

using trace::HugePage;

constexpr std::uint32_t kMostStride = 1U << 16;  // a process of 8 TiB

void add_zeros(const HugePage& page, std::vector<Range>& ranges) {
  const auto is_zero = [&](std::size_t i) { return (page.zero.at(i / 64) >> (i % 64) & 1) != 0; };
  for (std::size_t i = 0; i < HugePage::bytes / kPageBytes; ++i) {
    if (!is_zero(i)) continue;
    const std::uint64_t at = page.start + i * kPageBytes;
    if (!ranges.empty() && ranges.back().end == at)
      ranges.back().end = at + kPageBytes;
    else
      ranges.push_back({at, at + kPageBytes});
  }
}

}  // namespace

std::optional<HugeZeros> read_huge_zeros(Bytes payload) {
  ByteReader reader(payload);
  trace::HugePagesHeader header{};
  if (!reader.take(header) || header.stride == 0 || header.stride > kMostStride) return std::nullopt;
  HugeZeros zeros{.walk_end_ns = header.walk_end_ns, .stride = header.stride, .ranges = {}};
  std::uint64_t last_end = 0;
  while (!reader.rest().empty()) {
    HugePage page{};
    if (!reader.take(page) || page.start % HugePage::bytes != 0 || page.start < last_end ||
        page.start > std::numeric_limits<std::uint64_t>::max() - 2 * HugePage::bytes)
      return std::nullopt;
    last_end = page.start + HugePage::bytes;
    const bool all = std::ranges::all_of(page.zero, [](std::uint64_t word) { return ~word == 0; });
    if (!all) add_zeros(page, zeros.ranges);
  }
  return zeros;
}

}  // namespace whyrss
