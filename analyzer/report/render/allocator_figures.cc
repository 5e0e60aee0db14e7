#include "report/render/allocator_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "report/render/process_text.h"
#include "report/wording/format.h"
#include "report/wording/plural.h"

namespace whyrss {
namespace {

constexpr double kAlike = 0.02;
// Heaps below this are not worth showing, but for the main process's.
constexpr std::int64_t kShownArenaBytes = std::int64_t{1} << 20;
constexpr std::size_t kFigureLines = 5;
// Nothing of a program's own is there yet.
constexpr std::string_view kStart = "start";

// glibc counts a block's header of 8 bytes with it, and 8 more where the block is a mapping of its own.
constexpr std::int64_t kGlibcHeaderBytes = 8;

std::optional<std::int64_t> value_of(const AllocatorStats& stats, const char* name) {
  const auto found = stats.values.find(name);
  return found == stats.values.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::int64_t> allocated_bytes(const AllocatorStats& stats) {
  if (const auto in_use = value_of(stats, "uordblks")) {
    const std::int64_t mapped_blocks = value_of(stats, "hblks").value_or(0);
    const std::int64_t headers = kGlibcHeaderBytes * (stats.counted_blocks.value_or(0) + mapped_blocks);
    return std::max<std::int64_t>(*in_use + value_of(stats, "hblkhd").value_or(0) - headers, 0);
  }
  if (const auto allocated = value_of(stats, "stats.allocated"))
    return std::max<std::int64_t>(*allocated - value_of(stats, "stats.arenas.4096.tcache_bytes").value_or(0), 0);
  return value_of(stats, "generic.current_allocated_bytes");
}

std::int64_t fullness(const AllocatorStats& stats) {
  if (stats.counted_bytes) return *stats.counted_bytes;
  return allocated_bytes(stats).value_or(value_of(stats, "current_commit").value_or(0));
}

bool differs(const AllocatorStats& stats) {
  const auto difference = allocator_figure(stats).difference;
  return difference && std::abs(*difference) > kAlike;
}

// What is known about why the allocator counts more, or less.
std::string why(const AllocatorStats& stats, double difference) {
  if (difference < 0)
    return "whyrss counts blocks that this allocator does not: another one serves some of them, or they came and "
           "went at that moment";
  if (stats.values.contains("uordblks"))
    return "glibc counts as in use what its threads' caches hold (up to 0.25 MiB each) and its own arenas' headers; "
           "blocks from before whyrss was there are in its count only";
  return "blocks from before whyrss was there, and those that the allocator makes for itself, are in its count only";
}

std::string line_of(const ProcessAccount& account, const AllocatorStats& stats) {
  const std::string who = fmt::format("pid {}, {:.1f} s, {}: {} ", account.pid, stats.time_s, stats.moment,
                                      account.allocator.empty() ? "the allocator" : printable(account.allocator));
  const AllocatorFigure figure = allocator_figure(stats);
  if (!figure.allocated) {
    const auto committed = value_of(stats, "current_commit");
    return who + (committed ? fmt::format("has {} committed; what of it is allocated it does not count",
                                          size_text(*committed))
                            : std::string("does not count what is allocated"));
  }
  std::string line = who + fmt::format("counts {} allocated", size_text(*figure.allocated));
  if (!stats.counted_bytes || !figure.difference) return line;
  line += fmt::format(", whyrss {} live: {:+.2f} %", size_text(*stats.counted_bytes), *figure.difference * 100);
  return differs(stats) ? line + " (" + why(stats, *figure.difference) + ")" : line;
}

}  // namespace

AllocatorFigure allocator_figure(const AllocatorStats& stats) {
  AllocatorFigure figure{.allocated = allocated_bytes(stats), .difference = std::nullopt};
  if (!figure.allocated || !stats.counted_bytes) return figure;
  const std::int64_t larger = std::max(*figure.allocated, *stats.counted_bytes);
  const auto apart = static_cast<double>(*figure.allocated) - static_cast<double>(*stats.counted_bytes);
  figure.difference = larger > 0 ? apart / static_cast<double>(larger) : 0;
  return figure;
}

const AllocatorStats* fullest_allocator_stats(const ProcessAccount& account) {
  const auto fullest = std::ranges::max_element(account.allocator_stats, {}, fullness);
  return fullest == account.allocator_stats.end() ? nullptr : &*fullest;
}

std::vector<std::string> allocator_lines(const View& view) {
  std::vector<std::string> lines;
  std::size_t left_out = 0;
  for (const ProcessView& process : view.processes) {
    const AllocatorStats* stats = fullest_allocator_stats(*process.account);
    const bool is_main = &process == &view.processes.front();
    if (stats == nullptr || (!is_main && (!differs(*stats) || fullness(*stats) < kShownArenaBytes))) continue;
    if (stats->moment == kStart && fullness(*stats) < kShownArenaBytes) continue;  // read at no other time
    if (lines.size() < kFigureLines)
      lines.push_back(line_of(*process.account, *stats));
    else
      ++left_out;
  }
  if (left_out > 0) lines.push_back(counted(left_out, "more process") + " where both counts differ by over 2 %");
  return lines;
}

}  // namespace whyrss
