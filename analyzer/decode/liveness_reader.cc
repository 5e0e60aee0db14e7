#include "decode/liveness_reader.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include "shim/trace/liveness_format.h"
#include "shim/trace/recording_format.h"

namespace whyrss {
namespace {

using trace::kLivenessPageBytes;
using trace::LivenessFlags;
using trace::PageLiveness;

std::int64_t bytes_of(std::uint64_t value) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(value, std::numeric_limits<std::int64_t>::max()));
}

PageLife life_of(std::uint16_t word) {
  const auto units = static_cast<std::uint16_t>(word & PageLiveness::live_units);
  return {.live_bytes = static_cast<std::uint16_t>(units * trace::kLivenessUnitBytes),
          .pymalloc = (word & PageLiveness::pymalloc) != 0,
          .ever_held = (word & PageLiveness::ever_held) != 0};
}

static_assert(kLivenessPageBytes == kLivePageBytes);

}  // namespace

bool LivenessReader::read_ranges(ByteReader& reader, std::uint32_t range_count, bool whole,
                                 std::vector<Words>& ranges) const {
  std::size_t last = 0;  // in last_, for pages in rising order
  std::uint64_t end = 0;
  for (std::uint32_t i = 0; i < range_count; ++i) {
    trace::LivenessRange header{};
    if (!reader.take(header) || header.start < end || header.start % kLivenessPageBytes != 0) return false;
    const std::size_t size_bytes = std::size_t{header.page_count} * sizeof(std::uint16_t);
    const Bytes bytes = reader.take_bytes(size_bytes);
    reader.take_bytes(trace::padded(size_bytes) - size_bytes);
    if (reader.bad()) return false;
    end = header.start + header.page_count * kLivenessPageBytes;
    if (end < header.start) return false;
    Words& range = ranges.emplace_back(Words{.start = header.start, .words = {}});
    range.words.resize(header.page_count);
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(range.words)).begin());
    for (std::size_t page = 0; page < range.words.size(); ++page) {
      const std::uint64_t address = range.start + page * kLivenessPageBytes;
      if (!whole) {
        while (last < last_.size() && last_[last].start + last_[last].words.size() * kLivenessPageBytes <= address)
          ++last;
        if (last < last_.size() && address >= last_[last].start)
          range.words[page] ^= last_[last].words[(address - last_[last].start) / kLivenessPageBytes];
      }
      if ((range.words[page] & PageLiveness::live_units) > trace::kLivenessPageUnits) return false;
    }
  }
  return reader.rest().empty();
}

std::optional<WalkLiveness> LivenessReader::read(Bytes payload) {
  ByteReader reader(payload);
  trace::LivenessHeader header{};
  const bool readable = reader.take(header);
  const bool whole = header.previous_ns == 0;
  std::vector<Words> ranges;
  const bool follows = readable && (whole || header.previous_ns == last_ns_);
  if (!follows || !read_ranges(reader, header.range_count, whole, ranges)) {
    last_ns_ = 0;
    last_.clear();
    return std::nullopt;
  }
  WalkLiveness liveness{.walk_end_ns = header.walk_end_ns,
                        .has_table = (header.flags & (LivenessFlags::no_table | LivenessFlags::not_readable)) == 0,
                        .pages = {},
                        .table_live_bytes = bytes_of(header.table_live_bytes),
                        .pymalloc_live_bytes = bytes_of(header.pymalloc_live_bytes),
                        .underflowed_pages = header.underflowed_pages};
  liveness.pages.reserve(ranges.size());
  for (const Words& range : ranges) {
    LivePages& pages = liveness.pages.emplace_back(LivePages{.start = range.start, .pages = {}});
    pages.pages.reserve(range.words.size());
    for (const std::uint16_t word : range.words) pages.pages.push_back(life_of(word));
  }
  last_ = std::move(ranges);
  last_ns_ = header.walk_end_ns;
  return liveness;
}

}  // namespace whyrss
