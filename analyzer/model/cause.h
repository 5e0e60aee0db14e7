// The closed list of answers whyrss can give: every resident byte has exactly one Cause. To add one:
// an enumerator, a row, a rule in attribute/, a demo.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace whyrss {

// In claim order: the first that matches wins. heap_unsplit is what names of functions take from anonymous, afterwards
// (load/unsplit_memory.h). Parts of jobs hold the numbers: where these change, so does kPartVersion (job/part_file.cc).
enum class Cause : std::uint8_t {
  whyrss,
  device,
  shared_memory,
  file_cache,
  file_cow,
  lazy_free,
  fork_cow,
  fork_shared,
  stack,
  heap_live,
  heap_slack,
  heap_retained,
  heap_metadata,
  anonymous,
  unknown,
  not_looked_at,
  heap_unsplit,
};

inline constexpr std::size_t kCauseCount = 17;

struct CauseInfo {
  Cause cause;
  std::string_view slug;        // stable, in JSON and --fail-if
  std::string_view title;       // for people
  std::string_view comes_back;  // when the memory returns
};

inline constexpr std::array<CauseInfo, kCauseCount> kCauses{{
    {Cause::whyrss, "whyrss", "whyrss itself", "tracing ends"},
    {Cause::device, "device", "device and pinned memory", "the driver frees it"},
    {Cause::shared_memory, "shared_memory", "shared memory", "the last user unmaps and unlinks it"},
    {Cause::file_cache, "file_cache", "file cache", "the kernel needs it; not a leak"},
    {Cause::file_cow, "file_cow", "private copies of file pages", "it is unmapped"},
    {Cause::lazy_free, "lazy_free", "given up with MADV_FREE", "the kernel needs it"},
    {Cause::fork_cow, "fork_cow", "copied since fork", "the process exits"},
    {Cause::fork_shared, "fork_shared", "shared since fork", "costs nothing while shared"},
    {Cause::stack, "stack", "stacks", "the thread ends"},
    {Cause::heap_live, "heap_live", "live heap", "the program frees it"},
    {Cause::heap_slack, "heap_slack", "heap slack (fragmentation)", "the neighbours are freed"},
    {Cause::heap_retained, "heap_retained", "heap kept by the allocator", "the allocator reuses or trims it"},
    {Cause::heap_metadata, "heap_metadata", "allocator bookkeeping", "its blocks are given back"},
    {Cause::anonymous, "anonymous", "anonymous mappings", "it is unmapped"},
    {Cause::unknown, "unknown", "unknown", "not known"},
    {Cause::not_looked_at, "not_looked_at", "unknown, between snapshots", "not known"},
    {Cause::heap_unsplit, "heap_unsplit", "memory of a library's allocator", "its allocator decides"},
}};

static_assert(
    [] {
      for (std::size_t i = 0; i < kCauseCount; ++i)
        if (static_cast<std::size_t>(kCauses[i].cause) != i) return false;
      return true;
    }(),
    "kCauses must list every Cause once, in order");

constexpr const CauseInfo& info(Cause cause) { return kCauses[static_cast<std::size_t>(cause)]; }

}  // namespace whyrss
