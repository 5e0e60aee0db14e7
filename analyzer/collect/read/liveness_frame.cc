#include "collect/read/liveness_frame.h"

#include <algorithm>
#include <span>
#include <utility>

#include "collect/read/append_bytes.h"
#include "shim/trace/liveness_format.h"

namespace whyrss {
namespace {

using trace::kLivenessPageBytes;

std::uint64_t end_of(const LivenessPages& range) { return range.start + range.pages.size() * kLivenessPageBytes; }

// What was said before of pages that are asked for in rising order.
class PreviousPages {
 public:
  explicit PreviousPages(const std::vector<LivenessPages>& ranges) : ranges_(ranges) {}

  void take_from(std::uint64_t start, std::span<std::uint16_t> words) {
    const std::uint64_t end = start + words.size() * kLivenessPageBytes;
    while (next_ < ranges_.size() && end_of(ranges_[next_]) <= start) ++next_;
    for (std::size_t i = next_; i < ranges_.size() && ranges_[i].start < end; ++i) {
      const LivenessPages& range = ranges_[i];
      const std::uint64_t from = std::max(start, range.start), to = std::min(end, end_of(range));
      const std::uint16_t* before = range.pages.data() + (from - range.start) / kLivenessPageBytes;
      std::uint16_t* word = words.data() + (from - start) / kLivenessPageBytes;
      for (std::uint64_t left = (to - from) / kLivenessPageBytes; left > 0; --left) *word++ ^= *before++;
    }
  }

 private:
  const std::vector<LivenessPages>& ranges_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<std::byte> LivenessFrames::encode(Liveness liveness) {
  const bool whole = since_whole_ == 0;
  liveness.header.previous_ns = whole ? 0 : previous_ns_;
  liveness.header.range_count = static_cast<std::uint32_t>(liveness.ranges.size());
  std::vector<std::byte> out;
  append_bytes(out, &liveness.header, sizeof liveness.header);
  PreviousPages previous(previous_);
  std::vector<std::uint16_t> words;
  for (const LivenessPages& range : liveness.ranges) {
    const trace::LivenessRange header{
        .start = range.start, .page_count = static_cast<std::uint32_t>(range.pages.size()), .reserved = 0};
    append_bytes(out, &header, sizeof header);
    words = range.pages;
    if (!whole) previous.take_from(range.start, words);
    append_bytes(out, words.data(), words.size() * sizeof words[0]);
    out.resize(trace::padded(out.size()));
  }
  previous_ns_ = liveness.header.walk_end_ns;
  previous_ = std::move(liveness.ranges);
  since_whole_ = (since_whole_ + 1) % kFramesPerWhole;
  return out;
}

}  // namespace whyrss
