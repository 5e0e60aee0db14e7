#include "recording/frame_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace whyrss {
namespace {

constexpr std::size_t kMostGaps = 5;

struct Gap {
  std::uint64_t first, last;
};

struct Missing {
  std::vector<Gap> gaps;  // the first ones
  std::uint64_t gap_count = 0, frame_count = 0;

  // [from, to)
  void add(std::uint64_t from, std::uint64_t to) {
    if (from >= to) return;
    frame_count += to - from;
    if (++gap_count <= kMostGaps) gaps.push_back({from, to - 1});
  }
};

Missing missing_of(const FrameFile& file, std::optional<std::uint64_t> frame_count) {
  Missing missing;
  std::uint64_t next = 0;
  for (const RawFrame& frame : file.frames) {
    missing.add(next, frame.number);
    next = frame.number + 1;
  }
  if (frame_count) missing.add(next, *frame_count);
  return missing;
}

// People count from 1.
std::string gap_text(const Gap& gap) {
  return gap.first == gap.last ? fmt::format("{}", gap.first + 1)
                               : fmt::format("{} to {}", gap.first + 1, gap.last + 1);
}

std::string missing_text(const Missing& missing, std::optional<std::uint64_t> frame_count) {
  std::string list;
  for (const Gap& gap : missing.gaps) list += (list.empty() ? "" : ", ") + gap_text(gap);
  if (missing.gap_count > missing.gaps.size()) list += fmt::format(" and more, {} in all", missing.frame_count);
  const std::string all = frame_count ? fmt::format(" of {}", *frame_count) : "";
  return missing.frame_count == 1 ? fmt::format("frame {}{} is missing", list, all)
                                  : fmt::format("frames {}{} are missing", list, all);
}

// How many there were.
std::size_t take_out_beyond(FrameFile& file, std::uint64_t frame_count) {
  const auto beyond = std::ranges::lower_bound(file.frames, frame_count, {}, &RawFrame::number);
  const auto count = static_cast<std::size_t>(file.frames.end() - beyond);
  file.frames.erase(beyond, file.frames.end());
  return count;
}

}  // namespace

void put_in_order(FrameFile& file) {
  // The largest number has no successor.
  std::erase_if(file.frames,
                [](const RawFrame& frame) { return frame.number == std::numeric_limits<std::uint64_t>::max(); });
  const auto misplaced = std::ranges::adjacent_find(
      file.frames, [](const RawFrame& one, const RawFrame& next) { return next.number < one.number; });
  if (misplaced != file.frames.end()) {
    file.first_misplaced = std::next(misplaced)->number;
    std::ranges::stable_sort(file.frames, {}, &RawFrame::number);
  }
  const auto same = [](const RawFrame& one, const RawFrame& next) { return one.number == next.number; };
  const auto repeated = std::unique(file.frames.begin(), file.frames.end(), same);
  file.repeated_frames = static_cast<std::uint64_t>(file.frames.end() - repeated);
  file.frames.erase(repeated, file.frames.end());
}

std::vector<std::string> check_frames(FrameFile& file, std::optional<std::uint64_t> frame_count) {
  std::vector<std::string> found;
  if (file.damaged_bytes > 0) found.push_back(fmt::format("{} bytes are damaged and were skipped", file.damaged_bytes));
  if (file.cut_short) found.emplace_back("the end is missing");
  if (file.repeated_frames > 0)
    found.push_back(fmt::format("{} of its frames stood there twice and {} used once", file.repeated_frames,
                                file.repeated_frames == 1 ? "was" : "were"));
  if (file.first_misplaced)
    found.push_back(fmt::format("frame {} stood behind a later one", *file.first_misplaced + 1));
  if (const std::size_t beyond = frame_count ? take_out_beyond(file, *frame_count) : 0; beyond > 0)
    found.push_back(fmt::format("it had {} more frames than its writer counted, which were left out", beyond));
  if (const Missing missing = missing_of(file, frame_count); missing.frame_count > 0)
    found.push_back(missing_text(missing, frame_count));
  return found;
}

}  // namespace whyrss
