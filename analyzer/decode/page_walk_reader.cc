#include "decode/page_walk_reader.h"

#include <bit>
#include <string>
#include <string_view>

#include "shim/trace/recording_format.h"

namespace whyrss {
namespace {

using trace::PageBits;
using trace::VmaPerms;

constexpr std::uint64_t kMostWalkPages = std::uint64_t{1} << 48;  // keeps every sum of bytes below 2^63
constexpr std::uint32_t kLeastPageBytes = 4096, kMostPageBytes = 64 * 1024;

bool is_counted(std::uint32_t bits) {
  return (bits & PageBits::present) != 0 && (bits & (PageBits::zero | PageBits::guard | PageBits::not_rss)) == 0;
}

void add_run(WalkedPages& walk, const Vma& vma, std::uint64_t start, std::uint64_t end, std::uint32_t bits) {
  const bool counted = is_counted(bits);
  const bool exclusive = (bits & PageBits::exclusive) != 0, huge = (bits & PageBits::huge) != 0;
  if (counted) {
    const bool file = (bits & PageBits::file) != 0;
    const bool joins = !walk.runs.empty() && walk.runs.back().end == start && start != vma.start &&
                       walk.runs.back().file == file && walk.runs.back().exclusive == exclusive &&
                       walk.runs.back().huge == huge;
    if (joins)
      walk.runs.back().end = end;
    else
      walk.runs.push_back({start, end, file, exclusive, huge});
  }
  const bool swapped = (bits & PageBits::swapped) != 0 && (bits & PageBits::guard) == 0;
  if (!is_private_anonymous(vma) || (!counted && !swapped)) return;
  const bool marked = (bits & PageBits::write_tracked) != 0;
  auto& runs = walk.anonymous;
  if (!runs.empty() && runs.back().end == start && runs.back().exclusive == exclusive &&
      runs.back().resident == counted && runs.back().marked == marked && runs.back().huge == huge)
    runs.back().end = end;
  else
    runs.push_back({start, end, exclusive, counted, marked, huge});
}

bool read_vma(ByteReader& reader, WalkedPages& walk) {
  trace::WalkVma header{};
  if (!reader.take(header)) return false;
  const std::uint64_t mask = walk.page_bytes - 1;
  if (header.start >= header.end || (header.start & mask) != 0 || (header.end & mask) != 0) return false;
  if (!walk.vmas.empty() && header.start < walk.vmas.back().end) return false;
  if (static_cast<std::uint32_t>(header.backing) > static_cast<std::uint32_t>(trace::Backing::special)) return false;
  Vma vma{.start = header.start,
          .end = header.end,
          .path = file_name(reader.take_text(header.path_bytes), static_cast<Backing>(header.backing)),
          .backing = static_cast<Backing>(header.backing),
          .shared = (header.perms & VmaPerms::shared) != 0,
          .writable = (header.perms & VmaPerms::write) != 0,
          .executable = (header.perms & VmaPerms::exec) != 0,
          .file_offset = header.file_offset,
          .readable = (header.perms & VmaPerms::read) != 0};
  reader.take_bytes(trace::padded(header.path_bytes) - header.path_bytes);
  std::uint64_t at = header.start;
  for (std::uint32_t i = 0; i < header.run_count; ++i) {
    trace::WalkRun run{};
    if (!reader.take(run) || run.page_count > (header.end - at) / walk.page_bytes) return false;
    const std::uint64_t end = at + run.page_count * walk.page_bytes;
    if (run.page_count > 0) add_run(walk, vma, at, end, run.bits);
    if (is_counted(run.bits)) walk.resident_pages += run.page_count;
    at = end;
  }
  if (reader.bad() || at != header.end || walk.resident_pages > kMostWalkPages) return false;
  walk.vmas.push_back(std::move(vma));
  return true;
}

}  // namespace

std::string file_name(std::string path, Backing backing) {
  constexpr std::string_view kDeleted = " (deleted)";
  if (backing == Backing::file && path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
  return path;
}

std::optional<trace::WalkHeader> read_walk_header(Bytes payload) {
  trace::WalkHeader header{};
  if (!ByteReader(payload).take(header)) return std::nullopt;
  return header;
}

std::optional<WalkedPages> read_walk(Bytes payload) {
  ByteReader reader(payload);
  trace::WalkHeader header{};
  if (!reader.take(header)) return std::nullopt;
  if (!std::has_single_bit(header.page_bytes) || header.page_bytes < kLeastPageBytes ||
      header.page_bytes > kMostPageBytes)
    return std::nullopt;
  WalkedPages walk;
  walk.begin_ns = header.begin_ns;
  walk.end_ns = header.end_ns;
  walk.minor_faults = header.minor_faults;
  walk.page_bytes = header.page_bytes;
  walk.skewed = (header.flags & trace::WalkFlags::skewed) != 0;
  walk.smaps_only = (header.flags & trace::WalkFlags::smaps_only) != 0;
  walk.partial = (header.flags & trace::WalkFlags::partial) != 0;
  for (std::uint32_t i = 0; i < header.vma_count; ++i)
    if (!read_vma(reader, walk)) return std::nullopt;
  if (!reader.rest().empty()) return std::nullopt;
  return walk;
}

}  // namespace whyrss
